import { expect, test } from "vitest";
import { answer, initializationOptions, type Inspection } from "../src/core/settings";
import manifest from "../package.json";

const DECLARED = manifest.contributes.configuration.properties;
const SET: { [key: string]: Inspection } = {
  "frog.model.path": { globalValue: "mine.gguf", workspaceValue: "/ws/evil.gguf", workspaceFolderValue: "/ws/evil.gguf" },
  "frog.jail.backend": { workspaceValue: "files" },
  "frog.tests.command": { globalValue: "make test", workspaceValue: "pytest", workspaceFolderValue: "pytest -q" },
  "frog.limits.maxSteps": { workspaceValue: 7 },
  "frog.limits.timeS": {},
  "frog.path": { globalValue: ["/x"] },
};
const inspect = (key: string): Inspection | undefined => SET[key];
const BASE = { trusted: true, "review.ask": false };

test("the user's own settings are the user's alone", () => {
  expect(answer(DECLARED, inspect, false, true)).toEqual({ ...BASE, "model.path": "mine.gguf", "tests.command": "make test" });
});

test("a folder may say what is not of the machine", () => {
  expect(answer(DECLARED, inspect, true, true)).toEqual({
    ...BASE,
    "model.path": "mine.gguf",
    "tests.command": "pytest -q",
    "limits.maxSteps": 7,
  });
});

test("a folder that is not trusted says nothing", () => {
  expect(answer(DECLARED, inspect, true, false)).toEqual({
    ...BASE,
    trusted: false,
    "model.path": "mine.gguf",
    "tests.command": "make test",
  });
  expect(initializationOptions(false)).toMatchObject({ trusted: false });
});
