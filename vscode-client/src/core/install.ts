/** How the server is installed into an environment of the extension's own. Pure: which commands, and what went wrong. */

import type { Translate } from "./translate";

export const PACKAGE = "frog-lsp";
export const OLDEST_PYTHON: readonly [number, number] = [3, 11];

/** Names under which a Python may be had, the newest first. */
export const PYTHONS = ["python3.13", "python3.12", "python3.11", "python3", "python"] as const;

/** Prints the version for `isNewEnough`. */
export const VERSION_ARGUMENTS = ["-I", "-c", "import sys; print('%d.%d' % sys.version_info[:2])"] as const;

export function isNewEnough(printed: string): boolean {
  const [major, minor] = printed.trim().split(".").map(Number);
  const [oldMajor, oldMinor] = OLDEST_PYTHON;
  return major === oldMajor && minor !== undefined && minor >= oldMinor;
}

export interface Command {
  readonly program: string;
  readonly arguments: readonly string[];
}

/** The commands, in order. `source` is what pip installs. */
export function commands(python: string, folder: string, ownPython: string, source = PACKAGE): Command[] {
  return [
    { program: python, arguments: ["-I", "-m", "venv", "--clear", folder] },
    {
      program: ownPython,
      arguments: ["-I", "-m", "pip", "install", "--disable-pip-version-check", "--no-input", "--upgrade", source],
    },
  ];
}

/** What to do about an installation that failed, from what it printed. */
export function advice(printed: string, t: Translate): string {
  if (/ensurepip is not available|No module named '?(venv|ensurepip)/.test(printed)) {
    return t("Python has no venv here. On Debian or Ubuntu: apt-get install python3-venv.");
  }
  if (/CMAKE_C(XX)?_COMPILER|No CMAKE_C|CMake Error.*compiler|command '(gcc|cc|c\+\+|g\+\+)' failed|ninja.*not found/i.test(printed)) {
    return t(
      "llama-cpp-python is compiled on this machine and found no C++ compiler. On Debian or Ubuntu: apt-get install build-essential. On macOS: xcode-select --install.",
    );
  }
  if (/No matching distribution|Could not find a version/.test(printed)) {
    return t("pip found no package of that name. Install frog-lsp by hand and set frog.path.");
  }
  if (/No space left on device/.test(printed)) {
    return t("The disk is full: about 2 GB are needed.");
  }
  if (/Temporary failure in name resolution|ConnectionError|Max retries exceeded|Network is unreachable/i.test(printed)) {
    return t("The package index could not be reached. Only the installation needs a network.");
  }
  return t("The log has every line that was printed.");
}

/** The line of an installer's output that a person is shown. */
export function stage(line: string, t: Translate): string | undefined {
  const building = /Building wheel[s]? for ([\w.-]+)/.exec(line)?.[1];
  if (building !== undefined) {
    return building.startsWith("llama") ? t("compiling llama-cpp-python (4 to 10 minutes)") : t("building {0}", building);
  }
  const collecting = /^Collecting ([\w.-]+)/.exec(line)?.[1];
  if (collecting !== undefined) {
    return t("fetching {0}", collecting);
  }
  return /^Installing collected packages/.test(line) ? t("installing the packages") : undefined;
}
