"""Install bubblewrap, which backend B of the jail needs, where root may: `python tests/jail/install.py`.

One line says what was installed, or why it could not be; one that is there already is used as it is. Standard
library only. With `CI=true` it ends in exit code 1 where it cannot be had; elsewhere its tests are skipped.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

PROGRAM = "/usr/bin/bwrap"
APT_GET = ("env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq", "-o", "DPkg::Lock::Timeout=120")
TIMEOUT_S = 600


def install() -> None:
    """Install the package of Debian. Raises OSError, SubprocessError."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise OSError("as root: apt-get install bubblewrap")
    for arguments in (("update",), ("install", "--yes", "--no-install-recommends", "bubblewrap")):
        subprocess.run((*APT_GET, *arguments), check=True, capture_output=True, timeout=TIMEOUT_S)


def main() -> int:
    """Install what is missing; 1 where CI needs it and it could not be had."""
    if os.path.exists(PROGRAM):
        return 0
    try:
        install()
        print("jail: bubblewrap installed with apt-get")
    except (subprocess.SubprocessError, OSError) as error:
        print(f"jail: bubblewrap is missing, the tests of backend B will not run: {error}")
        return int(os.environ.get("CI") == "true")
    return 0


if __name__ == "__main__":
    sys.exit(main())
