"""What a GPU is called here, whatever it was called there: any provider's or person's name to the canonical one.

The order of trial: the canonical name; an alias of `gpus.csv`; the same words in another order or with other separators.
A name is read as its model, its memory and its form: `NVIDIA A100-SXM4-80GB` is model `a100`, 80 GB, form `sxm`. A short form
leaves some of it out. Where it leaves several GPUs, the first in the file's order is taken (the SXM part, the size people
mean), and the answer says that this was done. A name that fits no model is refused with the nearest ones.

Example: `A100` fits four rows; it is taken as A100-80GB-SXM, `taken_as_short` is true. `A100_PCIE` with 40 GB known
from elsewhere is A100-40GB-PCIe. `RTX 6000` is three different cards and none of them: an UnknownNameError.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from costguard.errors import UnknownNameError
from costguard.values.checks import find_nearest_names
from costguard.values.gpu import Gpu


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuNameMatch:
    """The canonical name, and whether the words given would also have fitted another GPU."""

    canonical: str
    taken_as_short: bool = False


class GpuNames:
    """The names of a set of GPUs. Build it once and ask often; the tables are made at the first hard question."""

    def __init__(self, gpus: Mapping[str, Gpu]) -> None:
        self._gpus = gpus
        self._spelled: dict[str, Gpu] = {}
        self._known: list[_GpuSpellings] = []

    def resolve(self, name: str, *, vram_gb: float | None = None, field: str = "gpu") -> GpuNameMatch:
        """The GPU meant by `name`. `vram_gb`, where the provider states it beside the name, decides between sizes."""
        found = self.find(name, vram_gb=vram_gb)
        if found is None:
            raise self._make_unknown_error(name if vram_gb is None else f"{name} with {vram_gb:g} GB", _split_name(name), field)
        return found

    def find(self, name: str, *, vram_gb: float | None = None) -> GpuNameMatch | None:
        """The same; None where no GPU here goes by that name. To look for the nearest names takes some 3 ms."""
        if name in self._gpus and vram_gb is None:
            return GpuNameMatch(canonical=name)
        self._prepare()
        exact = self._spelled.get(_fold_spelling(name))
        if exact is not None and _has_memory(exact, vram_gb):
            return GpuNameMatch(canonical=exact.name)
        words = _split_name(name)
        fitting = [known.gpu.name for known in self._known if known.fits(words) and _has_memory(known.gpu, vram_gb)]
        return GpuNameMatch(canonical=fitting[0], taken_as_short=len(fitting) > 1) if fitting else None

    def _prepare(self) -> None:
        if not self._known:
            self._known = [_collect_spellings(gpu) for gpu in self._gpus.values()]
            for gpu in self._gpus.values():
                for spelling in _list_spellings(gpu):
                    self._spelled.setdefault(_fold_spelling(spelling), gpu)

    def _make_unknown_error(self, name: str, words: _NameParts, field: str) -> UnknownNameError:
        """The refusal, with the GPUs whose model contains the words first, then those spelled most alike."""
        names = {spelling: gpu.name for gpu in self._gpus.values() for spelling in _list_spellings(gpu)}
        holding = [known.gpu.name for known in self._known if words.model and words.model in known.words.model]
        near = dict.fromkeys(holding + [names[spelling] for spelling in find_nearest_names(name, names, most=12)])
        return UnknownNameError("GPU", name, field=field, nearest=tuple(near)[:4], hint="`costguard offers` lists what is sold")


def match_gpu_name(name: str, gpus: Mapping[str, Gpu], *, vram_gb: float | None = None, field: str = "gpu") -> GpuNameMatch:
    """The GPU meant by `name`, asked once; hold a `GpuNames` to ask often."""
    return GpuNames(gpus).resolve(name, vram_gb=vram_gb, field=field)


SIZE_TOLERANCE = 0.12
"""How far a stated memory may lie from the datasheet's. Drivers report 22,888 MiB of an L4's 24 GB (7% less), a B200 is
listed as 180 and as 192 GB; no model comes in two sizes closer than a third apart."""

LONGEST_GPU_NAME = 120
"""Characters looked at: names come from outside, and no real one is half as long."""

_FORMS = frozenset(("sxm", "pcie", "nvl", "fhhl", "maxq", "server", "ws"))
_SPELLED_OUT = {"workstation": "ws"}
_NOISE = re.compile(
    "nvidia|geforce|tesla|rtx|gtx|amd|instinct|oam|google|apple|habana|gpu|generation|edition|blackwell|hbm[23]e?"
)
_SIZE = re.compile(r"(?<![a-z\d])(\d+)\s*gi?b(?![a-z\d])")
_FORM = re.compile(r"\b(sxm|pcie|nvl|fhhl|max-?q)\d*\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class _NameParts:
    """A name taken apart. `model` is what is left without the maker's words: `4070tisuper`."""

    model: str
    sizes: frozenset[int]
    forms: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class _GpuSpellings:
    """A GPU with every size and form under which one of its spellings goes."""

    gpu: Gpu
    words: _NameParts

    def fits(self, asked: _NameParts) -> bool:
        return asked.model == self.words.model and asked.sizes <= self.words.sizes and asked.forms <= self.words.forms


def _collect_spellings(gpu: Gpu) -> _GpuSpellings:
    read = [_split_name(spelling) for spelling in _list_spellings(gpu)]
    sizes = frozenset[int]().union(*(words.sizes for words in read)) | {int(gpu.vram_gb)}
    forms = frozenset[str]().union(*(words.forms for words in read))
    return _GpuSpellings(gpu=gpu, words=_NameParts(model=read[0].model, sizes=sizes, forms=forms))


def _list_spellings(gpu: Gpu) -> tuple[str, ...]:
    return (gpu.name, *gpu.aliases)


def _has_memory(gpu: Gpu, vram_gb: float | None) -> bool:
    return vram_gb is None or abs(gpu.vram_gb - vram_gb) <= SIZE_TOLERANCE * gpu.vram_gb


def _split_name(name: str) -> _NameParts:
    text = name[:LONGEST_GPU_NAME].lower().replace("_", " ")
    sizes = frozenset(int(size) for size in _SIZE.findall(text))
    rest = _FORM.sub(lambda found: f" {found[1].replace('-', '')} ", _SIZE.sub(" ", text))
    words = [_SPELLED_OUT.get(word, word) for word in re.findall(r"[a-z\d]+", rest)]
    model = "".join(word for word in words if word not in _FORMS and not _NOISE.fullmatch(word))
    return _NameParts(model=model, sizes=sizes, forms=_FORMS.intersection(words))


def _fold_spelling(name: str) -> str:
    """`name` as spellings are compared: letters and digits only."""
    return re.sub(r"[\W_]+", "", name[:LONGEST_GPU_NAME].lower())
