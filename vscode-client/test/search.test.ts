import { describe, expect, test } from "vitest";
import { findServer, isFound, programsOnPath, type Places, type Wishes } from "../src/core/search";

const NONE: Wishes = { path: [], interpreter: [], importStrategy: "fromEnvironment" };
const LINUX: Places = {
  platform: "linux",
  searchPath: "/usr/bin:/ws/.venv/bin::bin:/opt/bin",
  home: "/home/me",
  workspaceFolders: ["/ws"],
  ownFolder: "/store/server",
};

/** A machine that has these programs; a link is written `name -> target`. */
function machine(...programs: string[]): (program: string) => Promise<string | undefined> {
  const known = new Map(programs.map((p) => p.split(" -> ") as [string, string?]).map(([a, b]) => [a, b ?? a]));
  return async (program) => known.get(program);
}

async function found(wishes: Partial<Wishes>, ...programs: string[]): Promise<unknown> {
  return await findServer({ ...NONE, ...wishes }, LINUX, machine(...programs));
}

const OWN = "/store/server/bin/frog-lsp";
const PATH = "/opt/bin/frog-lsp";
const UV = "/home/me/.local/bin/frog-lsp";

describe("in order", () => {
  test("PATH, where uv and pipx put it, our own environment", async () => {
    expect(await found({}, PATH, UV, OWN)).toEqual({ program: PATH, origin: "PATH" });
    expect(await found({}, UV, OWN)).toEqual({ program: UV, origin: "PATH" });
    expect(await found({}, OWN)).toEqual({ program: OWN, origin: "own" });
    expect(await found({})).toEqual({ problem: undefined });
  });

  test("what the user named goes first, also by a bare name", async () => {
    expect(await found({ path: ["/x/frog-lsp", "/y/frog-lsp"] }, "/y/frog-lsp", PATH)).toMatchObject({ program: "/y/frog-lsp" });
    expect(await found({ path: ["frog-lsp"] }, PATH)).toEqual({ program: PATH, origin: "frog.path" });
    expect(await found({ path: ["~/f"] }, "/home/me/f")).toMatchObject({ program: "/home/me/f" });
    expect(await found({ interpreter: ["/venv/bin/python"] }, "/venv/bin/frog-lsp", PATH)).toEqual({
      program: "/venv/bin/frog-lsp",
      origin: "frog.interpreter",
    });
  });

  test("with useBundled our own environment alone", async () => {
    expect(await found({ importStrategy: "useBundled" }, PATH, OWN)).toMatchObject({ origin: "own" });
    expect(isFound((await found({ importStrategy: "useBundled" }, PATH)) as never)).toBe(false);
  });
});

describe("nothing of the workspace is started", () => {
  test("not its environment, though PATH names it", async () => {
    expect(await found({}, "/ws/.venv/bin/frog-lsp")).toEqual({ problem: undefined });
    expect(programsOnPath(LINUX)).toEqual(["/usr/bin/frog-lsp", "/opt/bin/frog-lsp", UV]);
  });

  test("not through a link on PATH", async () => {
    expect(await found({}, `${PATH} -> /ws/evil`, OWN)).toMatchObject({ origin: "own" });
  });

  test("no relative path", async () => {
    expect(await found({ path: ["./frog-lsp"] }, "./frog-lsp", "/ws/frog-lsp")).toMatchObject({ problem: { named: "./frog-lsp" } });
  });

  test("a folder beside it is another", () => {
    const places = { ...LINUX, searchPath: "/ws-2/bin" };
    expect(programsOnPath(places)).toContain("/ws-2/bin/frog-lsp");
  });
});

test("where the user named something that is not there, nothing else is started", async () => {
  expect(await found({ path: ["/x/frog-lsp"] }, PATH, OWN)).toEqual({ problem: { setting: "frog.path", named: "/x/frog-lsp" } });
  expect(await found({ interpreter: ["/v/python"] }, PATH)).toMatchObject({ problem: { setting: "frog.interpreter" } });
});

test("on Windows", async () => {
  const places: Places = {
    platform: "win32",
    searchPath: "C:\\ws\\.venv\\Scripts;C:\\Tools",
    home: "C:\\Users\\me",
    workspaceFolders: ["c:\\ws"],
    ownFolder: "C:\\store\\server",
  };
  const program = "C:\\Tools\\frog-lsp.exe";
  expect(await findServer(NONE, places, machine("C:\\ws\\.venv\\Scripts\\frog-lsp.exe", program))).toMatchObject({ program });
});
