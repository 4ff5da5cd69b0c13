"""A GPU as its datasheet states it: dense rates, never the sparse headline.

Units: GB are 1e9 bytes as sold; GiB are 2^30. TFLOPS are 1e12 dense operations a second with fp32 accumulation;
bandwidths are GB/s, both directions together for links; watts. The facts stand in `costguard/data/gpus.csv`.

Example: H100-SXM is sold as 80 GB; the driver offers a process 79.11 GiB of it, and that is what a job must fit.

What a GPU is called here, whatever it was called there: any provider's or person's name to the canonical one.

The order of trial: the canonical name; an alias of `gpus.csv`; the same words in another order or with other separators.
A name is read as its model, its memory and its form: `NVIDIA A100-SXM4-80GB` is model `a100`, 80 GB, form `sxm`. A short form
leaves some of it out. Where it leaves several GPUs, the first in the file's order is taken (the SXM part, the size people
mean), and the answer says that this was done. A name that fits no model is refused with the nearest ones.

Example: `A100` fits four rows; it is taken as A100-80GB-SXM, `taken_as_short` is true. `A100_PCIE` with 40 GB known
from elsewhere is A100-40GB-PCIe. `RTX 6000` is three different cards and none of them: an UnknownNameError.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from costguard.errors import InputError, UnknownNameError
from costguard.values.checks import find_nearest_names, require, require_number

GIB = 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One model of GPU. None means the datasheet gives no such figure (no fp8 on an A100), never zero.

    `bf16_tflops` is the dense 16-bit tensor rate; where `has_bf16` is false only fp16 runs at it. `dies` is how many
    devices one card shows to the driver: a process gets the card's memory and rates divided by it.
    `mamf_bf16_tflops` is the best matrix multiplication anybody has measured, against the datasheet's peak.
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
        """GiB one process can use at most: what the driver reports of one die, or a cautious share of the stated size."""
        return self.card_gib / self.dies

    @property
    def card_gib(self) -> float:
        """GiB of all dies of the card together, as the driver reports them."""
        if self.usable_gib is not None:
            return self.usable_gib
        return self.vram_gb * (UNIFIED_SHARE if self.unified_memory else USABLE_SHARE)

    @property
    def runs_pytorch(self) -> bool:
        """Whether the memory of a PyTorch job says anything of this part: not of TPUs or Trainium, which compile it anew."""
        return self.vendor in PYTORCH_VENDORS

    @property
    def nvlink(self) -> bool:
        """Whether GPUs of one machine talk to each other over a fabric much faster than PCIe."""
        fast = (self.interconnect_gb_s or 0) >= FAST_FABRIC_GB_S
        return fast and not any(word in self.interconnect for word in PAIRWISE_LINKS)


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
    """Every GPU of `gpus.csv` by its name, in the file's order, which is the order in which short forms are tried."""
    gpus: dict[str, Gpu] = {}
    for row in rows:
        gpu = read_gpu(row)
        require(gpu.name not in gpus, f"gpus.csv {gpu.name}", "appears twice", "remove one row")
        gpus[gpu.name] = gpu
    return gpus


def read_gpu(row: Mapping[str, str]) -> Gpu:
    """One row of `gpus.csv`; an empty cell is None."""
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
