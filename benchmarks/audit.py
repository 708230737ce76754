"""Lists the packages that counterpoint is installed with: pins, licences, a software bill of materials, known vulnerabilities.

The bill (CycloneDX, build/sbom.json) is made of what is installed, without a network. Known vulnerabilities come from
pip-audit, which needs a network and may be missing: then this says so and goes on. Exits with 1 if a package has a known
vulnerability, or is installed in another version than constraints.txt pins.
"""

import argparse
import importlib.util
import json
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
UNKNOWN = "not stated"


class Package(NamedTuple):
    name: str
    version: str
    licence: str


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "sbom.json")
    options = parser.parse_args()
    found = packages()
    width = max(len(package.name) for package in found)
    for package in found:
        print(f"{package.name:<{width}}  {package.version:<16}  {package.licence}")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(bill_of(found), indent=1))
    strays = unpinned(found, (ROOT / "constraints.txt").read_text())
    unstated = [package.name for package in found if package.licence == UNKNOWN]
    print(f"\n{len(found)} packages → {options.out}")
    print(f"without a stated licence: {', '.join(unstated) or 'none'}")
    print(f"in another version than constraints.txt pins: {', '.join(strays) or 'none'}")
    sys.exit(vulnerable() or bool(strays))


def packages() -> list[Package]:
    """Returns what is installed, by name."""
    found = {}
    for package in metadata.distributions():
        name = re.sub(r"[-_.]+", "-", package.metadata["Name"]).lower()
        found.setdefault(name, Package(name, package.version, licence_of(package.metadata)))
    return sorted(found.values())


def licence_of(facts: metadata.PackageMetadata) -> str:
    """Returns a package's licence, in one line, from whichever field states it."""
    stated = facts.get("License-Expression") or ""
    classes = [text.rpartition(" :: ")[2] for text in facts.get_all("Classifier") or () if text.startswith("License ::")]
    free = (facts.get("License") or "").strip().splitlines()
    text = stated or ", ".join(name for name in classes if name != "OSI Approved") or (free[0] if free else "")
    return text[:60] or UNKNOWN


def bill_of(found: list[Package]) -> dict[str, object]:
    """Returns the bill of materials in CycloneDX's format."""
    components = [
        {
            **{"type": "library", "name": package.name, "version": package.version},
            **{"purl": f"pkg:pypi/{package.name}@{package.version}", "licenses": [{"license": {"name": package.licence}}]},
        }
        for package in found
    ]
    return {"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1, "components": components}


def unpinned(found: list[Package], constraints: str) -> list[str]:
    """Returns the packages whose version is not the one that the constraints pin."""
    pins = dict(re.findall(r"^([\w.-]+)==([^\s;#]+)", constraints, re.MULTILINE))
    pins = {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in pins.items()}
    return [
        f"{package.name} {package.version} (pinned {pins[package.name]})"
        for package in found
        if pins.get(package.name, package.version).partition("+")[0] != package.version.partition("+")[0]
    ]


def vulnerable() -> bool:
    """Returns whether pip-audit knows a vulnerability; says so if it cannot tell."""
    if importlib.util.find_spec("pip_audit") is None:
        print("known vulnerabilities: not checked, because pip-audit is not installed (pip install pip-audit, with a network).")
        return False
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pip_audit", "--local", "--progress-spinner", "off", "--format", "json"],
            capture_output=True, text=True, timeout=600, check=False,
        )  # fmt: skip
        report = json.loads(done.stdout)
    except (subprocess.TimeoutExpired, ValueError) as error:
        print(f"known vulnerabilities: not checked, because pip-audit failed, perhaps for lack of a network ({error}).")
        return False
    bad = [f"{item['name']} {item['version']} ({v['id']})" for item in report["dependencies"] for v in item.get("vulns", ())]
    print(f"known vulnerabilities: {', '.join(bad) or 'none'}")
    return bool(bad)


if __name__ == "__main__":
    main()
