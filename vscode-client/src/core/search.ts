/**
 * Where the server is: what the user named, the environment the user chose, PATH, our own environment. Pure.
 *
 * A workspace's own `.venv` is never taken by itself: whoever wrote the workspace would choose what runs.
 */

import * as path from "node:path";

export type Origin = "frog.path" | "frog.interpreter" | "PATH" | "own";

/** What the settings say. Those that are not set are empty. */
export interface Wishes {
  readonly path: readonly string[];
  readonly interpreter: readonly string[];
  readonly importStrategy: "fromEnvironment" | "useBundled";
}

/** The machine: `ownFolder` is the environment that the extension makes for itself. */
export interface Places {
  readonly platform: NodeJS.Platform;
  readonly searchPath: string;
  readonly home: string;
  readonly workspaceFolders: readonly string[];
  readonly ownFolder: string;
}

export interface Candidate {
  readonly program: string;
  readonly origin: Origin;
}

/** `problem` is set where the user named a program that is not there: nothing else is started in its place. */
export interface Missing {
  readonly problem: { readonly setting: "frog.path" | "frog.interpreter"; readonly named: string } | undefined;
}

export type Search = Candidate | Missing;

export function isFound(search: Search): search is Candidate {
  return "program" in search;
}

/** Gives the real path of a program, undefined where there is none that can be executed. */
export type Probe = (program: string) => Promise<string | undefined>;

export async function findServer(wishes: Wishes, places: Places, probe: Probe): Promise<Search> {
  if (wishes.path.length > 0) {
    return await firstNamed("frog.path", wishes.path, programsNamed(wishes.path, places), probe);
  }
  if (wishes.importStrategy === "fromEnvironment") {
    if (wishes.interpreter.length > 0) {
      const beside = wishes.interpreter.map((python) => besideInterpreter(withHome(python, places), places));
      return await firstNamed("frog.interpreter", wishes.interpreter, beside, probe);
    }
    for (const program of programsOnPath(places)) {
      const real = await probe(program);
      if (real !== undefined && !isInWorkspace(real, places)) {
        return { program, origin: "PATH" };
      }
    }
  }
  const own = ownProgram(places);
  return (await probe(own)) !== undefined ? { program: own, origin: "own" } : { problem: undefined };
}

async function firstNamed(
  setting: "frog.path" | "frog.interpreter",
  named: readonly string[],
  programs: readonly string[],
  probe: Probe,
): Promise<Search> {
  for (const program of programs) {
    if ((await probe(program)) !== undefined) {
      return { program, origin: setting };
    }
  }
  return { problem: { setting, named: named.join(", ") } };
}

function programsNamed(named: readonly string[], places: Places): string[] {
  const { isAbsolute } = pathOf(places);
  return named.flatMap((name) => {
    const program = withHome(name, places);
    if (isAbsolute(program)) {
      return [program];
    }
    // A bare name is looked up as a shell does; anything else would depend on the folder that is open.
    return /[\\/]/.test(program) ? [] : programsOnPath(places, program);
  });
}

/** The programs of a name in the folders of PATH, then where uv and pipx put them: an editor that was not started
 * from a shell often has a shorter PATH. */
export function programsOnPath(places: Places, name = "frog-lsp"): string[] {
  const { isAbsolute, join } = pathOf(places);
  const folders = places.searchPath.split(places.platform === "win32" ? ";" : ":");
  const known = [...folders, join(places.home, ".local", "bin")];
  const outside = known.filter((folder) => isAbsolute(folder) && !isInWorkspace(folder, places));
  return [...new Set(outside)].map((folder) => join(folder, executable(name, places)));
}

/** The program that the extension's own environment has, once it is made. */
export function ownProgram(places: Places): string {
  return pathOf(places).join(places.ownFolder, binFolder(places), executable("frog-lsp", places));
}

/** The Python of the extension's own environment. */
export function ownPython(places: Places): string {
  return pathOf(places).join(places.ownFolder, binFolder(places), executable("python", places));
}

function besideInterpreter(python: string, places: Places): string {
  const { dirname, join } = pathOf(places);
  return join(dirname(python), executable("frog-lsp", places));
}

export function isInWorkspace(file: string, places: Places): boolean {
  const { relative, isAbsolute } = pathOf(places);
  return places.workspaceFolders.some((folder) => {
    const below = relative(folder, file);
    return below === "" || (below.split(/[\\/]/)[0] !== ".." && !isAbsolute(below));
  });
}

function withHome(name: string, places: Places): string {
  return name.startsWith("~/") ? pathOf(places).join(places.home, name.slice(2)) : name;
}

function executable(name: string, places: Places): string {
  return places.platform === "win32" && !name.endsWith(".exe") ? `${name}.exe` : name;
}

function binFolder(places: Places): string {
  return places.platform === "win32" ? "Scripts" : "bin";
}

function pathOf(places: Places): path.PlatformPath {
  return places.platform === "win32" ? path.win32 : path.posix;
}
