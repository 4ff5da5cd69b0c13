"""GPU models with their datasheet figures (dense rates, not the sparse ones), and resolution of GPU names.

Units: GB are 1e9 bytes as sold; GiB are 2^30. TFLOPS are 1e12 dense operations a second with fp32 accumulation; bandwidths are
GB/s, both directions together for links; watts. The figures are in `costguard/data/gpus.csv`.

Example: H100-SXM is sold as 80 GB; the driver offers a process 79.11 GiB of it, and a job must fit into that.

Names of providers and people are resolved to the canonical name in this order: the canonical name; an alias of `gpus.csv`; the
same words in another order or with other separators. A name is parsed into its model, memory and form: `NVIDIA A100-SXM4-80GB`
is model `a100`, 80 GB, form `sxm`. A short name omits some of these. If several GPUs match, the first in the order of the file
is taken (the SXM part, the most common size), and the result is marked. A name that matches no model is refused, with the
nearest names.

Example: `A100` matches four rows; it is taken as A100-80GB-SXM, with `taken_as_short` true. `A100_PCIE` with a separately
stated 40 GB is A100-40GB-PCIe. `RTX 6000` names three different cards and resolves to none: UnknownNameError.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from costguard.errors import InputError, UnknownNameError
from costguard.values.checks import find_nearest_names, require, require_number

GIB = 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One model of GPU. None means that the datasheet has no such figure (no fp8 on an A100); it never means zero.

    `bf16_tflops` is the dense 16-bit tensor rate; if `has_bf16` is false, only fp16 reaches it. `dies` is how many devices one
    card shows to the driver: a process gets the card's memory and rates divided by it. `mamf_bf16_tflops` is the highest
    measured rate of a matrix multiplication, in contrast to the datasheet's peak.
    """

    name: str
    vendor: str
    arch: str
    vram_gb: float
    bandwidth_gb_s: float
    aliases: tuple[str, ...] = ()
    compute_capability: str = ""
    usable_gib: float | None = None
    fp32_tflops: float | None = None
    tf32_tflops: float | None = None
    bf16_tflops: float | None = None
    fp8_tflops: float | None = None
    fp4_tflops: float | None = None
    int8_tops: float | None = None
    mamf_bf16_tflops: float | None = None
    interconnect: str = ""
    interconnect_gb_s: float | None = None
    tdp_w: float | None = None
    price_usd: float | None = None
    has_bf16: bool = True
    unified_memory: bool = False
    dies: int = 1
    verified: str = "memory"
    note: str = ""

    def __post_init__(self) -> None:
        require(bool(self.name), "gpu.name", "is empty", "write a name such as A100-80GB-SXM")
        require_number(self.vram_gb, f"{self.name}.vram_gb", least=1, most=10_000)
        require_number(self.bandwidth_gb_s, f"{self.name}.bandwidth_gb_s", least=1, most=1e6)
        require(self.dies >= 1, f"{self.name}.dies", f"must be 1 or more, not {self.dies}", "count what the driver shows")

    @property
    def memory_gib(self) -> float:
        """Return the GiB that one process can use at most: as the driver reports for one die, or a share of the stated size."""
        return self.card_gib / self.dies

    @property
    def card_gib(self) -> float:
        """Return the GiB of all dies of the card, as the driver reports them."""
        if self.usable_gib is not None:
            return self.usable_gib
        return self.vram_gb * (UNIFIED_SHARE if self.unified_memory else USABLE_SHARE)

    @property
    def runs_pytorch(self) -> bool:
        """Return whether PyTorch memory figures apply. They do not for TPUs and Trainium, which compile the model."""
        return self.vendor in PYTORCH_VENDORS

    @property
    def nvlink(self) -> bool:
        """Return whether the GPUs of one machine are connected by a fabric much faster than PCIe."""
        fast = (self.interconnect_gb_s or 0) >= FAST_FABRIC_GB_S
        return fast and not any(word in self.interconnect for word in PAIRWISE_LINKS)

    def get_sparse_rate(self, field: str) -> float | None:
        """Return the rate `field` with 2:4 sparsity: twice the dense one; None where the GPU has none, or it is not known.

        Tensor cores from Ampere and matrix cores from CDNA3 on have it, for each type but fp32. Of fp4 on Blackwell Ultra and
        CDNA4 no ratio is known here, and it is not two (decision 0145).
        """
        dense: float | None = getattr(self, field)
        has_it = field != "fp32_tflops" and self.arch.startswith(SPARSE_ARCHITECTURES)
        if dense is None or not has_it or (field == "fp4_tflops" and self.arch in {"Blackwell Ultra", "CDNA4"}):
            return None
        return 2 * dense


SPARSE_ARCHITECTURES = ("Ampere", "Ada", "Hopper", "Blackwell", "CDNA3", "CDNA4")

USABLE_SHARE = 0.97
"""Share of the stated size the driver offers where no figure for the model is known: "8 GB" is 7.75 GiB on an RTX 4060
(github.com/ESRSchao/EdgeRegNet issue 2), 23.52 of 24 on an RTX 4090, 9.64-9.78 of 10 on an RTX 3080. Boards with ECC over
GDDR6 keep 7%; theirs stand in gpus.csv (L40: 44.40 GiB, github.com/QwenLM/Qwen3-VL issue 2097)."""

UNIFIED_SHARE = 0.75
"""Share of Apple's unified memory a GPU process may use by default (`recommendedMaxWorkingSetSize`), gpus.csv 2026-11."""

PYTORCH_VENDORS = ("NVIDIA", "AMD", "Apple")

FAST_FABRIC_GB_S = 250

PAIRWISE_LINKS = ("bridge", "C2C")
"""Links that join two cards only, or a GPU with its own CPU: no fabric between the GPUs of a machine."""


def read_gpus(rows: Iterable[Mapping[str, str]]) -> dict[str, Gpu]:
    """Return every GPU of `gpus.csv` by name, in the file's order, in which short names are matched."""
    gpus: dict[str, Gpu] = {}
    for row in rows:
        gpu = read_gpu(row)
        require(gpu.name not in gpus, f"gpus.csv {gpu.name}", "appears twice", "remove one row")
        gpus[gpu.name] = gpu
    return gpus


def read_gpu(row: Mapping[str, str]) -> Gpu:
    """Parse one row of `gpus.csv`; an empty cell is None."""
    figures = {column: _read_figure(row, column) for column in _FIGURES}
    return Gpu(
        name=row["name"],
        aliases=tuple(filter(None, row["aliases"].split("|"))),
        vendor=row["vendor"],
        arch=row["arch"],
        compute_capability=row["compute_capability"],
        vram_gb=float(row["vram_gb"]),
        bandwidth_gb_s=float(row["bandwidth_gb_s"]),
        interconnect=row["interconnect"],
        has_bf16=_read_flag(row, "has_bf16"),
        unified_memory=_read_flag(row, "unified_memory"),
        dies=int(row["dies"]),
        verified=row["verified"],
        note=row["note"],
        **figures,
    )


_FIGURES = (
    "usable_gib",
    "fp32_tflops",
    "tf32_tflops",
    "bf16_tflops",
    "fp8_tflops",
    "fp4_tflops",
    "int8_tops",
    "mamf_bf16_tflops",
    "interconnect_gb_s",
    "tdp_w",
    "price_usd",
)


def _read_figure(row: Mapping[str, str], column: str) -> float | None:
    return float(row[column]) if row[column] else None


def _read_flag(row: Mapping[str, str], column: str) -> bool:
    if row[column] not in ("yes", "no"):
        raise InputError(f"must be yes or no, not '{row[column]}'", field=f"gpus.csv {row['name']}.{column}")
    return row[column] == "yes"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuNameMatch:
    """The canonical name, and whether the given name would also match another GPU."""

    canonical: str
    taken_as_short: bool = False


class GpuNames:
    """The names of a set of GPUs. Reuse one object for many look-ups; its tables are built at the first inexact name."""

    def __init__(self, gpus: Mapping[str, Gpu]) -> None:
        self._gpus = gpus
        self._spelled: dict[str, Gpu] = {}
        self._known: list[_GpuSpellings] = []

    def resolve(self, name: str, *, vram_gb: float | None = None, field: str = "gpu") -> GpuNameMatch:
        """Return the GPU that `name` refers to; raise UnknownNameError if none matches.

        `vram_gb`, if the provider states it beside the name, selects among sizes.
        """
        match = self.find(name, vram_gb=vram_gb)
        if match is None:
            raise self._make_unknown_error(name if vram_gb is None else f"{name} with {vram_gb:g} GB", _split_name(name), field)
        return match

    def find(self, name: str, *, vram_gb: float | None = None) -> GpuNameMatch | None:
        """Resolve as `resolve` does, but return None for an unknown name. This skips the search for near names, about 3 ms."""
        if name in self._gpus and vram_gb is None:
            return GpuNameMatch(canonical=name)
        self._prepare()
        exact = self._spelled.get(_fold_spelling(name))
        if exact is not None and _has_memory(exact, vram_gb):
            return GpuNameMatch(canonical=exact.name)
        fitting = [entry.gpu.name for entry in self._list_fitting(name) if _has_memory(entry.gpu, vram_gb)]
        return GpuNameMatch(canonical=fitting[0], taken_as_short=len(fitting) > 1) if fitting else None

    def list_family(self, name: str) -> tuple[str, ...]:
        """Return every GPU that `name` may mean: `A100` is its four rows, `A100-SXM` two, an exact name or alias one."""
        match = self.find(name)
        if match is None or not match.taken_as_short:
            return () if match is None else (match.canonical,)
        return tuple(entry.gpu.name for entry in self._list_fitting(name))

    def _list_fitting(self, name: str) -> list[_GpuSpellings]:
        words = _split_name(name)
        if (bare := BARE_SIZE.match(name)) and not any(entry.fits(words) for entry in self._known):
            words = _split_name(f"{bare[1]} {bare[2]}GB")  # a100-40
        return [entry for entry in self._known if entry.fits(words)]

    def resolve_with_size(self, name: str, *, field: str) -> tuple[Gpu, tuple[str, ...]]:
        """Return the GPU that `name` refers to, and notes; a size that is not listed (a Mac of 64 GB) is taken as stated."""
        hint = "leave out --on: the peak of costguard size is what the job needs in RAM; hours on a CPU are not known here"
        require(name.lower() != "cpu", field, "is no GPU: memory and hours on a CPU are not computed", hint)
        size = split_stated_size(name)
        if size is not None and self.find(name) is None and (plain := self.find(size[0])) is not None:
            listed = plain.canonical
            self._require_sold_size(listed, size[1], field)
            note = f"{listed} of {size[1]} GB is not listed: its memory is as stated, all else that of {listed}"
            bare = split_stated_size(listed.replace("-", " "))
            own_name = f"{bare[0].replace(' ', '-') if bare else listed}-{size[1]}GB"  # H20-141GB, of the listed H20-96GB
            return replace(self._gpus[listed], name=own_name, vram_gb=size[1], usable_gib=None), (note,)
        match = self.resolve(name, field=field)
        notes = (f"{name} was taken as {match.canonical}",) if match.taken_as_short else ()
        return self._gpus[match.canonical], notes

    def _require_sold_size(self, listed: str, size_gb: float, field: str) -> None:
        """Refuse more memory than a chip with unified memory has: its row has the largest that is sold."""
        gpu = self._gpus[listed]
        larger = [one.name for one in self._gpus.values() if one.unified_memory and one.vendor == gpu.vendor]
        larger = [name for name in larger if self._gpus[name].vram_gb >= size_gb]
        hint = f"write {listed}, or a chip that has {size_gb:g} GB: {', '.join(larger)}" if larger else f"write {listed}"
        sold = not gpu.unified_memory or size_gb <= gpu.vram_gb
        require(sold, field, f"no {listed} has {size_gb:g} GB: the largest has {gpu.vram_gb:g}", hint)

    def _prepare(self) -> None:
        if not self._known:
            self._known = [_collect_spellings(gpu) for gpu in self._gpus.values()]
            for gpu in self._gpus.values():
                for spelling in _list_spellings(gpu):
                    self._spelled.setdefault(_fold_spelling(spelling), gpu)

    def _make_unknown_error(self, name: str, words: _NameParts, field: str) -> UnknownNameError:
        """Build the error: first GPUs whose model contains the words, then those with the most similar spelling."""
        names = {spelling: gpu.name for gpu in self._gpus.values() for spelling in _list_spellings(gpu)}
        holding = [entry.gpu.name for entry in self._known if words.model and words.model in entry.words.model]
        near = dict.fromkeys(holding + [names[spelling] for spelling in find_nearest_names(name, names, most=12)])
        return UnknownNameError("GPU", name, field=field, nearest=tuple(near)[:4], hint="`costguard offers` lists what is sold")


COUNT_FIRST = re.compile(r"(\d{1,6})\s*[x*]\s*(?=[A-Za-z])(.+)")
COUNT_LAST = re.compile(r"(.*?[\d\s])x\s*(\d{1,6})")
BARE_SIZE = re.compile(r"(.*[A-Za-z]\d{2,4})[-_ ](\d{2,3})$")
"""A size without its unit behind a model: a100-40."""


def rewrite_hardware(text: str) -> str:
    """Return `8xH100`, `8 x H100`, `H100x8` and `H100 x8` as `H100:8`; all else as it is."""
    if ":" in text or len(text) > LONGEST_GPU_NAME:
        return text
    if match := COUNT_FIRST.fullmatch(text.strip()):
        return f"{match[2]}:{match[1]}"
    match = COUNT_LAST.fullmatch(text.strip())
    return f"{match[1].strip()}:{match[2]}" if match else text


def split_stated_size(name: str) -> tuple[str, int] | None:
    """Return a name without the memory that it states, and the GB: ("M4 Max", 64); None if it states none."""
    match = _SIZE.search(name.lower())
    return (f"{name[: match.start()]}{name[match.end() :]}".strip(" -_"), int(match[1])) if match else None


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
    """A parsed name. `model` is the rest without the words of the manufacturer: `4070tisuper`."""

    model: str
    sizes: frozenset[int]
    forms: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class _GpuSpellings:
    """A GPU with all sizes and forms of its spellings."""

    gpu: Gpu
    words: _NameParts

    def fits(self, parts: _NameParts) -> bool:
        return parts.model == self.words.model and parts.sizes <= self.words.sizes and parts.forms <= self.words.forms


def _collect_spellings(gpu: Gpu) -> _GpuSpellings:
    read = [_split_known_name(spelling) for spelling in _list_spellings(gpu)]
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
    rest = _FORM.sub(lambda match: f" {match[1].replace('-', '')} ", _SIZE.sub(" ", text))
    words = [_SPELLED_OUT.get(word, word) for word in re.findall(r"[a-z\d]+", rest)]
    model = "".join(word for word in words if word not in _FORMS and not _NOISE.fullmatch(word))
    return _NameParts(model=model, sizes=sizes, forms=_FORMS.intersection(words))


@lru_cache(maxsize=2048)
def _split_known_name(name: str) -> _NameParts:
    """Return the parts of a name of our own tables: the server of launchers reads all of them for each quote."""
    return _split_name(name)


def _fold_spelling(name: str) -> str:
    """Return `name` for comparison of spellings: letters and digits only."""
    return re.sub(r"[\W_]+", "", name[:LONGEST_GPU_NAME].lower())
