/** The trajectory of a run, as far as a person reads it. Pure; takes the file at any moment while it grows. */

export interface Call {
  readonly name: string;
  readonly arguments: { readonly [key: string]: unknown };
}

export interface Observation {
  readonly tool: string;
  readonly text: string;
  readonly durationS: number;
}

export interface Step {
  readonly step: number;
  readonly thought: string;
  readonly said: string;
  readonly calls: readonly Call[];
  readonly observations: readonly Observation[];
  readonly contextTokens: number;
}

export interface Trajectory {
  readonly issue: string;
  readonly model: { readonly kind: string; readonly name: string } | undefined;
  readonly workspace: string;
  readonly steps: readonly Step[];
  readonly outcome: { readonly exitReason: string; readonly elapsedS: number } | undefined;
}

type Json = { readonly [key: string]: unknown };

/** Reads JSON lines. A line that is half written, or of a kind that is not known here, is left out. */
export function readTrajectory(text: string): Trajectory {
  const lines = text.split("\n").flatMap(object);
  const header = lines.find((line) => "trajectory_format" in line) ?? {};
  const last = lines.find((line) => "exit_reason" in line);
  const model = record(header["model"]);
  return {
    issue: string(header["issue"]),
    model: model["name"] === undefined ? undefined : { kind: string(model["kind"]), name: string(model["name"]) },
    workspace: string(header["workspace"]),
    steps: lines.filter((line) => typeof line["step"] === "number" && "assistant" in line).map(step),
    outcome:
      last === undefined ? undefined : { exitReason: string(last["exit_reason"]), elapsedS: number(last["elapsed_sec"]) },
  };
}

function step(line: Json): Step {
  const assistant = record(line["assistant"]);
  return {
    step: number(line["step"]),
    thought: string(assistant["reasoning_content"]).trim(),
    said: string(assistant["content"]).trim(),
    calls: list(assistant["tool_calls"]).map((item) => {
      const called = record(record(item)["function"]);
      return { name: string(called["name"]), arguments: object(string(called["arguments"]))[0] ?? {} };
    }),
    observations: list(line["observations"]).map((item) => {
      const seen = record(item);
      return { tool: string(seen["tool"]), text: string(seen["observation"]), durationS: number(seen["duration_s"]) };
    }),
    contextTokens: number(line["context_tokens"]),
  };
}

function object(text: string): Json[] {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null && !Array.isArray(value) ? [value as Json] : [];
  } catch {
    return [];
  }
}

function record(value: unknown): Json {
  return typeof value === "object" && value !== null ? (value as Json) : {};
}

function list(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [];
}

function string(value: unknown): string {
  return typeof value === "string" ? value : "";
}

function number(value: unknown): number {
  return typeof value === "number" ? value : 0;
}
