"""Where a region lies: `--region eu`, `--region europe`, `--region de` and `--region us-east-1` all name regions.

Clouds name regions by their own rules, most of which begin with a place. The table below says which place a beginning names;
it was read from the clouds' lists of regions in 2026-11 (AWS, Google Cloud, Azure, RunPod, Lambda), and Vast ends its places
with the code of the country.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

CONTINENTS = {
    "africa": "za",
    "asia": "cn hk id in jp kr my ph sg th tw vn",
    "europe": "at be bg ch cz de dk ee es fi fr gb gr hr hu ie is it lt lu lv mt nl no pl pt ro rs se si sk ua",
    "middle-east": "ae bh il qa sa tr",
    "north-america": "ca mx us",
    "oceania": "au nz",
    "south-america": "ar br cl co pe",
}
"""Countries by continent, as ISO 3166 codes."""
EU = frozenset("at be bg hr cy cz de dk ee es fi fr gr hu ie it lt lu lv mt nl pl pt ro se si sk".split())  # noqa: SIM905
"""The members of the European Union."""
COUNTRY_NAMES = {
    "usa": "us", "united-states": "us", "america": "us", "uk": "gb", "united-kingdom": "gb", "germany": "de", "france": "fr",
    "ireland": "ie", "netherlands": "nl", "sweden": "se", "norway": "no", "finland": "fi", "poland": "pl", "spain": "es",
    "italy": "it", "switzerland": "ch", "canada": "ca", "japan": "jp", "india": "in", "australia": "au", "brazil": "br",
    "singapore": "sg", "korea": "kr", "taiwan": "tw", "iceland": "is", "romania": "ro",
}  # fmt: skip
BEGINNINGS = {
    "us-": "us", "eastus": "us", "westus": "us", "centralus": "us", "northcentralus": "us", "southcentralus": "us",
    "westcentralus": "us", "northamerica-northeast": "ca", "northamerica-south": "mx", "ca-": "ca", "canada": "ca",
    "mx-": "mx", "mexico": "mx", "sa-east": "br", "brazil": "br", "southamerica-east1": "br", "southamerica-west1": "cl",
    "chile": "cl", "eu-west-1": "ie", "eu-west-2": "gb", "eu-west-3": "fr", "eu-central-1": "de", "eu-central-2": "ch",
    "eu-north-1": "se", "eu-south-1": "it", "eu-south-2": "es", "europe-west1-": "be", "europe-west10": "de",
    "europe-west12": "it", "europe-west2": "gb", "europe-west3": "de", "europe-west4": "nl", "europe-west6": "ch",
    "europe-west8": "it", "europe-west9": "fr", "europe-west1": "be", "europe-north1": "fi", "europe-north2": "se",
    "europe-central2": "pl", "europe-southwest1": "es", "europe-central-1": "de", "northeurope": "ie", "westeurope": "nl",
    "uk": "gb", "france": "fr", "germany": "de", "norway": "no", "sweden": "se", "switzerland": "ch", "poland": "pl",
    "italy": "it", "spain": "es", "austria": "at", "belgium": "be", "denmark": "dk", "finland": "fi", "eu-ro": "ro",
    "eu-se": "se", "eu-cz": "cz", "eu-nl": "nl", "eu-fr": "fr", "eur-is": "is", "eur-no": "no", "ap-northeast-1": "jp",
    "ap-northeast-2": "kr", "ap-northeast-3": "jp", "ap-south-1": "in", "ap-south-2": "in", "ap-southeast-1": "sg",
    "ap-southeast-2": "au", "ap-southeast-3": "id", "ap-southeast-4": "au", "ap-east-1": "hk", "ap-jp": "jp", "ap-in": "in",
    "asia-east1": "tw", "asia-east2": "hk", "asia-northeast1": "jp", "asia-northeast2": "jp", "asia-northeast3": "kr",
    "asia-south": "in", "asia-southeast1": "sg", "asia-southeast2": "id", "japan": "jp", "korea": "kr", "southeastasia": "sg",
    "eastasia": "hk", "centralindia": "in", "southindia": "in", "westindia": "in", "sea-sg": "sg", "australia": "au",
    "oc-au": "au", "newzealand": "nz", "uae": "ae", "qatar": "qa", "israel": "il", "me-central-1": "ae", "me-south-1": "bh",
    "me-west1": "il", "me-central1": "qa", "il-central": "il", "southafrica": "za", "af-south": "za", "africa-south": "za",
    "indonesia": "id", "jioindia": "in", "malaysia": "my", "thailand": "th",
}  # fmt: skip
"""The country of every region whose name begins so; the longest beginning counts."""
COUNTRY_AT_END = re.compile(r"(?:^|, )([A-Z]{2})$")
"""Vast: `California, US`, `US`."""


def find_country(region: str) -> str:
    """Return the ISO 3166 code of the country of `region`, in small letters; "" where its name does not tell."""
    ended = COUNTRY_AT_END.search(region)
    if ended:
        return ended[1].lower()
    name = region.lower()
    if name in _list_known_countries():
        return name
    beginning = max((one for one in BEGINNINGS if name.startswith(one)), key=len, default="")
    return BEGINNINGS.get(beginning, "")


def _list_known_countries() -> frozenset[str]:
    return frozenset(code for codes in CONTINENTS.values() for code in codes.split())


def list_countries(place: str) -> frozenset[str]:
    """Return the countries that `place` names: a continent, `eu`, a country's code or name; empty where it names none."""
    name = place.strip().lower().replace(" ", "-")
    if name in CONTINENTS:
        return frozenset(CONTINENTS[name].split())
    if name == "eu":
        return EU
    codes = _list_known_countries()
    code = COUNTRY_NAMES.get(name, name)
    return frozenset((code,)) if code in codes else frozenset()


def expand_region(place: str, regions: Iterable[str]) -> tuple[str, ...]:
    """Return the `regions` that `place` names: itself, or all that lie in that place; empty if there are none."""
    names = tuple(regions)
    if place in names:
        return (place,)
    countries = list_countries(place)
    return tuple(region for region in names if find_country(region) in countries)
