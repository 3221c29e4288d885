/** The runs that are going on, from the server's progress. Pure. */

/** What the server says of the progress of a run. */
export interface Progress {
  readonly kind: "begin" | "report" | "end";
  readonly title?: string;
  readonly message?: string;
}

export interface Run {
  readonly runId: string;
  readonly title: string;
  /** What it does now, in the server's words. */
  readonly doing: string;
  readonly step: number | undefined;
  readonly maxSteps: number | undefined;
  readonly model: string | undefined;
  readonly jail: string | undefined;
}

const TOKEN = /^frog-run-(.+)$/;
const STEP = /^step (\d+) of (\d+)(?: · (.*))?$/s;
const STARTED = /^(.+) · jail: (\S+)$/;

/** The run that a progress token is of, undefined for every other. */
export function runOfToken(token: string | number): string | undefined {
  return typeof token === "string" ? TOKEN.exec(token)?.[1] : undefined;
}

/** A run after one more message of its progress; undefined once it has ended. */
export function advance(run: Run | undefined, runId: string, progress: Progress): Run | undefined {
  if (progress.kind === "end") {
    return undefined;
  }
  const before: Run = run ?? {
    runId,
    title: "",
    doing: "",
    step: undefined,
    maxSteps: undefined,
    model: undefined,
    jail: undefined,
  };
  const title = progress.title?.replace(/^FrogNano: /, "") ?? before.title;
  const doing = progress.message ?? before.doing;
  const step = STEP.exec(doing);
  if (step !== null) {
    return { ...before, title, doing, step: Number(step[1]), maxSteps: Number(step[2]) };
  }
  const started = STARTED.exec(doing);
  return started === null ? { ...before, title, doing } : { ...before, title, doing, model: started[1], jail: started[2] };
}
