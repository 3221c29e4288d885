import { expect, test } from "vitest";
import { readTrajectory } from "../src/core/trajectory";
import { transcribe } from "../src/core/transcript";
import { inEnglish } from "../src/core/translate";

const HEADER = {
  trajectory_format: "leaf-function-calling",
  model: { kind: "worker", name: "tadpole" },
  workspace: "/ws",
  issue: "add is wrong\nsee sum.py",
};
const STEP = {
  step: 1,
  assistant: {
    role: "assistant",
    content: "Let me look.",
    reasoning_content: "First\nread it.",
    tool_calls: [{ id: "1", type: "function", function: { name: "Bash", arguments: '{"command": "cat a\\ncat b", "n": 3}' } }],
  },
  observations: [{ tool: "Bash", observation: "def add\n", duration_s: 0.25 }],
  context_tokens: 100,
};
const END = { n_steps: 1, exit_reason: "agent", error: null, elapsed_sec: 9.25, partial: false };

function lines(...values: unknown[]): string {
  return values.map((value) => `${JSON.stringify(value)}\n`).join("");
}

test("a run that goes on, its last line half written", () => {
  const text = `${lines(HEADER, { role: "system", content: "s" }, STEP, { event: "of a later version" })}{"step": 2, "assi`;
  const made = transcribe(readTrajectory(text), inEnglish, "step 2 of 150 · thinking");
  expect(made.text).toBe(`# Issue
    add is wrong
    see sum.py
Model: tadpole (worker)

# Step 1
thought
    First
    read it.
says
    Let me look.
▸ Bash
    command:
        cat a
        cat b
    n: 3
◂ Bash (0.3 s)
    def add

… step 2 of 150 · thinking
`);
  expect(made.folds.filter((fold) => fold.isThought)).toEqual([{ start: 6, end: 8, isThought: true }]);
  for (const { start, end } of made.folds) {
    expect(made.text.split("\n").slice(start + 1, end + 1).every((line) => line.startsWith("    "))).toBe(true);
  }
});

test("a run that ended says how", () => {
  const made = transcribe(readTrajectory(lines(HEADER, STEP, END)), inEnglish);
  expect(made.text.endsWith("\n# Ended: the model ended by itself, after 9.3 s\n")).toBe(true);
});

test("what is no trajectory is an empty one", () => {
  const made = readTrajectory('null\n[1]\n7\n"x"\n{"step": 1}\n{"step": "x", "assistant": 3}\n');
  expect(made.steps).toEqual([]);
  expect(readTrajectory(lines({ step: 1, assistant: null, observations: 3 })).steps).toEqual([
    { step: 1, thought: "", said: "", calls: [], observations: [], contextTokens: 0 },
  ]);
});
