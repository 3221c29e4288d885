import { expect, test } from "vitest";
import { facts, findings, report } from "../src/core/doctor";
import { advice, commands, isNewEnough, stage } from "../src/core/install";
import { diagnosticsAt, withWords } from "../src/core/issue";
import { choiceOf, readModels } from "../src/core/models";
import { pathOf, placeOf } from "../src/core/places";
import { withoutLinks } from "../src/core/plain";
import { advance, runOfToken } from "../src/core/runs";
import { inEnglish as t } from "../src/core/translate";
import { conflicts, lookOf, maker, outcome, summary, testWords } from "../src/core/words";
import { file, MIXED, proposal } from "./proposals";

test("a summary says what, whether it was checked, what is flagged, and which model made it", () => {
  expect(summary(MIXED, t)).toBe(
    "FrogNano proposes changes in 5 files for “Add is wrong”; tests: not checked; 2 flagged, not ticked; " +
      "made by tadpole, a demonstration model.",
  );
  expect(summary({ ...MIXED, exitReason: "max_turns" }, t)).toContain("; the run ended early: the limit of steps was reached; ");
  const checked = {
    ...proposal(file("a")),
    tests: { command: "t", before: { exitCode: 1, tail: "" }, after: { exitCode: null, tail: "" } },
    model: { kind: "endpoint" as const, name: "big", demonstration: false },
  };
  expect(testWords(checked, t)).toBe("tests: exit code 1 before, timed out after");
  expect(maker(checked, t)).toBe("big, at an endpoint");
});

test("what runs by itself, and a conflict, can be seen", () => {
  const [, conftest] = MIXED.files;
  expect(lookOf(conftest!, t)).toMatchObject({ description: "new · runs by itself", icon: "warning" });
  expect(lookOf(conftest!, t).tooltip).toContain("pytest runs it");
  expect(lookOf(file("a", { prospect: "conflict" }), t)).toMatchObject({ description: "changed · conflict", icon: "git-merge" });
  expect(lookOf(file("b", { kind: "renamed", oldPath: "a" }), t).description).toBe("renamed · from a");
});

test("the answers of two messages are told as one", () => {
  const answer = { runId: "r", applied: false, state: "conflict" as const, patch: null, message: "FrogNano: no." };
  const results = [{ ...answer, files: [{ path: "a", outcome: "conflict" as const, detail: "" }] }, { ...answer, files: [] }];
  expect(outcome(results, t)).toBe("FrogNano: no. FrogNano: no.");
  expect(conflicts(results)).toEqual(["a"]);
  expect(outcome([], t)).toBe("Nothing is ticked.");
});

test("nobody else's text becomes a link that runs a command", () => {
  const text = "see [this](command:workbench.action.quit) and [that](https://x)";
  expect(withoutLinks(text)).not.toMatch(/\]\(/);
  expect(withoutLinks("plain [a] (b)")).toBe("plain [a] (b)");
});

test("the progress of a run", () => {
  expect(runOfToken("frog-run-20260131-142501-3fa2c1")).toBe("20260131-142501-3fa2c1");
  expect([runOfToken("x"), runOfToken(7)]).toEqual([undefined, undefined]);
  const messages = ["starting", "tadpole · jail: namespaces", "step 1 of 150 · thinking", "step 4 of 150 · Bash: pytest -q"];
  let run = advance(undefined, "r", { kind: "begin", title: "FrogNano: Add is wrong", message: "starting" });
  for (const message of messages) {
    run = advance(run, "r", { kind: "report", message });
  }
  expect(run).toMatchObject({ title: "Add is wrong", step: 4, maxSteps: 150, model: "tadpole", jail: "namespaces" });
  expect(run?.doing).toBe("step 4 of 150 · Bash: pytest -q");
  expect(advance(run, "r", { kind: "end", message: "a proposal: 1 file" })).toBeUndefined();
});

test("the doctor's page has the worst first", () => {
  const result = {
    ok: false,
    lines: [
      "folder /ws: runs are allowed",
      "model: ok: tadpole (demonstration model, bundled), 3.5 MiB, qwen35.",
      "engine: error: llama-cpp-python is not installed. Run `make setup`.",
      "jail: ok: Namespaces, overlay and seccomp work: Bash runs in a jail (backend `namespaces`).",
      "something without a colon",
    ],
  };
  expect(facts(result)).toEqual({ model: "tadpole (demonstration model, bundled)", jail: "namespaces" });
  expect(findings(result)[0]).toEqual({ name: "folder /ws", status: "note", text: "runs are allowed" });
  const page = report(result, t).split("\n");
  expect(page.slice(0, 3)).toEqual([
    "A run is not possible yet.",
    "",
    "error    engine: llama-cpp-python is not installed. Run `make setup`.",
  ]);
  expect(page[4]).toBe("ok       jail: Namespaces, overlay and seccomp work: Bash runs in a jail (backend");
  expect(page[5]).toBe("         `namespaces`).");
  expect(findings({ ok: false, lines: ["folder /ws: no runs, the workspace is not trusted"] })[0]?.status).toBe("error");
});

test("the installation", () => {
  expect(["3.11", "3.12\n", "3.10", "2.7", "4.0", ""].map(isNewEnough)).toEqual([true, true, false, false, false, false]);
  const [venv, pip] = commands("/usr/bin/python3", "/s/server", "/s/server/bin/python");
  expect(venv).toEqual({ program: "/usr/bin/python3", arguments: ["-I", "-m", "venv", "--clear", "/s/server"] });
  expect(pip?.arguments.at(-1)).toBe("frog-lsp");
  expect(stage("Collecting numpy>=1.26", t)).toBe("fetching numpy");
  expect(stage("  Building wheel for llama-cpp-python (pyproject.toml): started", t)).toContain("4 to 10 minutes");
  expect(stage("noise", t)).toBeUndefined();
  const printed = {
    compiler: "CMake Error: CMAKE_CXX_COMPILER not set, after EnableLanguage",
    venv: "The virtual environment was not created successfully because ensurepip is not available.",
    index: "ERROR: No matching distribution found for frog-lsp",
  };
  expect(advice(printed.compiler, t)).toContain("build-essential");
  expect(advice(printed.venv, t)).toContain("python3-venv");
  expect(advice(printed.index, t)).toContain("no package of that name");
});

test("the diagnostics under the cursor", () => {
  const at = (line: number, from: number, to: number) => ({
    range: { start: { line, character: from }, end: { line, character: to } },
  });
  const all = [at(1, 4, 9), at(1, 20, 25), at(2, 0, 3)];
  expect(diagnosticsAt(all, at(1, 9, 9).range)).toEqual([all[0]]);
  expect(diagnosticsAt(all, at(1, 15, 15).range)).toEqual([all[0], all[1]]);
  expect(diagnosticsAt(all, at(3, 0, 0).range)).toEqual([]);
  expect(withWords({ uri: "file:///a", selection: undefined }, "x")).toEqual({ uri: "file:///a", issue: "x" });
});

test("the names of our documents", () => {
  const place = { kind: "proposal", runId: "r", path: "src/a b.py" } as const;
  expect(placeOf(pathOf(place))).toEqual(place);
  expect(["/x/r/a", "/proposal/r", "", "/"].map(placeOf)).toEqual([undefined, undefined, undefined, undefined]);
});

test("the models to choose from", () => {
  const [tadpole, frog] = readModels(
    '{"models": [{"name": "tadpole", "installed": true, "size_bytes": 3619648, "use": "a try"}, {"name": "Frog", "installed": false, "size_bytes": 2800000000}]}',
  );
  expect(choiceOf(tadpole!, "tadpole", t)).toEqual({ label: "tadpole", description: "on this machine · chosen", detail: "a try" });
  expect(choiceOf(frog!, undefined, t).description).toBe("to be downloaded, 2.8 GB");
});
