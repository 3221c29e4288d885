import { describe, expect, test } from "vitest";
import { applications, firstTicks, hunkAt, isFileTicked, keptTicks, tickFile, tickHunk } from "../src/core/review";
import { file, hunk, MIXED, proposal } from "./proposals";

const RUN = MIXED.runId;
const [A, CONFTEST, NEVER] = MIXED.files;

describe("what is ticked at first", () => {
  test("what runs by itself is not, what is never applied cannot be", () => {
    const ticks = firstTicks(MIXED);
    expect([...ticks.hunks]).toEqual([1, 2]);
    expect([...ticks.files]).toEqual(["new.py", "old.py"]);
    expect(isFileTicked(CONFTEST!, ticks)).toBe(false);
    expect(applications(MIXED, tickFile(NEVER!, ticks, true)).flatMap((p) => p.files)).not.toContain(NEVER!.path);
  });

  test("what is in place already is not", () => {
    expect(firstTicks(proposal(file("a", { prospect: "in-place" }))).files.size).toBe(0);
  });
});

describe("what Apply sends", () => {
  test("whole files by name, flagged ones only when they are ticked", () => {
    const ticks = firstTicks(MIXED);
    expect(applications(MIXED, ticks)).toEqual([{ runId: RUN, files: ["a.py", "new.py", "old.py"] }]);
    const more = tickFile(CONFTEST!, ticks, true);
    expect(applications(MIXED, more)[0]?.files).toEqual(["a.py", "conftest.py", "new.py", "old.py"]);
  });

  test("hunks of a file in part go apart, and take no other file with them", () => {
    const ticks = tickHunk(2, firstTicks(MIXED), false);
    expect(applications(MIXED, ticks)).toEqual([
      { runId: RUN, files: ["new.py", "old.py"] },
      { runId: RUN, files: ["a.py"], hunks: [1] },
    ]);
  });

  test("of a file that is partly in place only what is left", () => {
    const made = proposal(file("a.py", { hunks: [hunk(1, { state: "applied" }), hunk(2), hunk(3, { state: "discarded" })] }));
    expect(applications(made, firstTicks(made))).toEqual([{ runId: RUN, files: ["a.py"], hunks: [2] }]);
  });

  test("nothing where nothing is ticked", () => {
    expect(applications(MIXED, { hunks: new Set(), files: new Set() })).toEqual([]);
  });
});

test("ticks stay when the proposal changes, those of what is settled go", () => {
  const ticks = tickFile(CONFTEST!, tickHunk(1, firstTicks(MIXED), false), true);
  const settled = MIXED.files.map((f) => (f.path === "new.py" ? { ...f, state: "applied" as const } : f));
  const kept = keptTicks(proposal(...settled), ticks);
  expect([...kept.hunks]).toEqual([2]);
  expect([...kept.files].sort()).toEqual(["conftest.py", "old.py"]);
});

test("a file is ticked with all its hunks, and unticks them", () => {
  const none = tickFile(A!, firstTicks(MIXED), false);
  expect([...none.hunks]).toEqual([]);
  expect(isFileTicked(A!, tickHunk(1, none, true))).toBe(false);
  expect(isFileTicked(A!, tickHunk(2, tickHunk(1, none, true), true))).toBe(true);
});

test("the hunk at a line of the proposal", () => {
  const made = file("a", { hunks: [hunk(1, { newStart: 3, newLines: 4 }), hunk(2, { newStart: 20, newLines: 0 })] });
  expect([1, 2, 5, 6, 19].map((line) => hunkAt(made, line)?.number)).toEqual([undefined, 1, 1, undefined, 2]);
});
