/** Proposals as the server sends them, made for the tests. */

import type { ProposalResult, ProposedFile, ProposedHunk } from "../src/protocol";

export function hunk(number: number, changes: Partial<ProposedHunk> = {}): ProposedHunk {
  return {
    number,
    state: "open",
    oldStart: 1,
    oldLines: 1,
    newStart: 1,
    newLines: 1,
    text: "@@ -1 +1 @@\n-old\n+new\n",
    ...changes,
  };
}

export function file(path: string, changes: Partial<ProposedFile> = {}): ProposedFile {
  return {
    path,
    oldPath: null,
    uri: `file:///ws/${path}`,
    kind: "modified",
    state: "open",
    flags: [],
    appliedByDefault: true,
    prospect: "clean",
    detail: "",
    conflict: null,
    before: "old\n",
    after: "new\n",
    hunks: [],
    ...changes,
  };
}

export function proposal(...files: ProposedFile[]): ProposalResult {
  return {
    runId: "20260131-142501-3fa2c1",
    state: "proposed",
    title: "Add is wrong",
    folder: "file:///ws",
    exitReason: "agent",
    finalMessage: "Done.",
    notes: [],
    nSteps: 3,
    elapsedS: 9.5,
    model: { kind: "worker", name: "tadpole", demonstration: true },
    jail: { backend: "namespaces", reduced: null },
    tests: { command: null, before: null, after: null },
    files,
  };
}

/** One of each kind that matters to a review. */
export const MIXED = proposal(
  file("a.py", { hunks: [hunk(1), hunk(2)] }),
  file("conftest.py", {
    kind: "created",
    appliedByDefault: false,
    flags: [{ code: "test-hook", level: "runs", why: "pytest runs it" }],
    hunks: [hunk(3)],
  }),
  file(".git/hooks/x", { flags: [{ code: "git", level: "never", why: "git runs it" }], appliedByDefault: false }),
  file("new.py", { kind: "created", hunks: [hunk(4)] }),
  file("old.py", { kind: "deleted", hunks: [hunk(5)] }),
);
