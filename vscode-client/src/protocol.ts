// Made by `frog-lsp schema protocol` from lsp_server/messages.py. Change it there.

export type RunState = "queued" | "running" | "proposed" | "nothing" | "applied" | "partly-applied" | "conflict" | "discarded" | "cancelled" | "failed";

export type ChangeKind = "created" | "modified" | "deleted" | "renamed" | "mode" | "link";

export type FlagLevel = "never" | "runs" | "used" | "note";

export type ModelKind = "worker" | "endpoint" | "scripted";

export type PartState = "open" | "applied" | "discarded";

export type Prospect = "clean" | "merged" | "conflict" | "in-place" | "by-hand";

export type FileOutcome = "applied" | "unchanged" | "unconfirmed" | "conflict" | "mismatch" | "rejected" | "by-hand" | "asked";

/** A position in the units that were negotiated. */
export interface Position {
  line: number;
  character: number;
}

/** From `start` to before `end`. */
export interface Range {
  start: Position;
  end: Position;
}

/**
 * `frog.fix`: what is to be fixed and where. Diagnostics are those of LSP, of any server.
 *
 * `uri` names a document or a folder; words alone are about the one open folder.
 */
export interface FixParams {
  uri?: string | null;
  range?: Range | null;
  diagnostics?: Record<string, unknown>[] | null;
  issue?: string | null;
}

/** `place` is 0 for a run that starts at once, else its place in the queue. */
export interface FixResult {
  runId: string;
  place: number;
}

/** `frog.cancel`: one run, or all. */
export interface CancelParams {
  runId?: string | null;
}

/** The runs that were stopped. */
export interface CancelResult {
  cancelled: string[];
}

/** `frog.runs` and `frog.doctor`. */
export type NoParams = Record<string, never>;

/** `frog.review`, `frog.proposal`. */
export interface RunParams {
  runId: string;
}

/** `frog.log`. With `show` false the file is named and not shown. */
export interface LogParams {
  runId: string;
  show?: boolean | null;
}

/**
 * One run in the answer of `frog.runs`. `exitReason` is null until the run has ended; `place` is there while it
 * is queued.
 */
export interface RunRow {
  runId: string;
  state: RunState;
  title: string;
  folder: string;
  exitReason: string | null;
  files: string[];
  place?: number;
}

/** Where the diff lies, and whether the client showed it. */
export interface ReviewResult {
  uri: string;
  path: string;
  shown: boolean;
  nHunks: number;
}

/** `frog.apply`: all that is applied by default, or the named files and hunks (numbered from 1). */
export interface ApplyParams {
  runId: string;
  files?: string[] | null;
  hunks?: number[] | null;
}

/** `frog.discard`: the whole proposal, or the named files and hunks (numbered from 1) of it. */
export interface DiscardParams {
  runId: string;
  files?: string[] | null;
  hunks?: number[] | null;
}

/** What happened to one file. `detail` says why, or the command that does by hand what an edit cannot. */
export interface AppliedFile {
  path: string;
  outcome: FileOutcome;
  detail: string;
}

/** `applied` is true when everything that was asked for is in place. `patch` is a file to apply by hand. */
export interface ApplyResult {
  runId: string;
  applied: boolean;
  state: RunState;
  files: AppliedFile[];
  patch: string | null;
  message: string;
}

/** What the run is now: `discarded` once nothing of its proposal is left. */
export interface DiscardResult {
  runId: string;
  state: RunState;
}

/** Something that a reviewer must see. `why` says what would run the file and when. */
export interface ProposedFlag {
  code: string;
  level: FlagLevel;
  why: string;
}

/** A hunk of one file, with its number over the whole diff. Starts count lines from 1; `text` begins with `@@`. */
export interface ProposedHunk {
  number: number;
  state: PartState;
  oldStart: number;
  oldLines: number;
  newStart: number;
  newLines: number;
  text: string;
}

/**
 * One change of a proposal, and what applying would do to the file as it is now.
 *
 * `uri` is the file of now (null where it is not in the folder any more), `before` the text that the run saw and
 * `after` the text that it proposes, each null where there is none or it is not text. `prospect` is null for what
 * is discarded or never applied; `conflict` has the three sides as git shows them.
 */
export interface ProposedFile {
  path: string;
  oldPath: string | null;
  uri: string | null;
  kind: ChangeKind;
  state: PartState;
  flags: ProposedFlag[];
  appliedByDefault: boolean;
  prospect: Prospect | null;
  detail: string;
  conflict: string | null;
  before: string | null;
  after: string | null;
  hunks: ProposedHunk[];
}

/** The model that made a proposal. */
export interface ModelUsed {
  kind: ModelKind;
  name: string;
  demonstration: boolean;
}

/** The jail in which a run worked; `reduced` is what it could not promise. */
export interface JailUsed {
  backend: string;
  reduced: string | null;
}

/** One run of the test command; `exitCode` is null at a time-out. */
export interface TestRun {
  exitCode: number | null;
  tail: string;
}

/** The tests without and with the proposal; both null: not checked. */
export interface TestsRun {
  command: string | null;
  before: TestRun | null;
  after: TestRun | null;
}

/** A proposal as data, for a client with a review of its own. */
export interface ProposalResult {
  runId: string;
  state: RunState;
  title: string;
  folder: string;
  exitReason: string;
  finalMessage: string;
  notes: string[];
  nSteps: number;
  elapsedS: number;
  model: ModelUsed;
  jail: JailUsed;
  tests: TestsRun;
  files: ProposedFile[];
}

/** The trajectory of a run: a file of JSON lines that grows with each step. `path` is null until it begins. */
export interface LogResult {
  runId: string;
  path: string | null;
  shown: boolean;
}

/** What a run needs, line by line; `ok` when a run is possible. */
export interface DoctorResult {
  ok: boolean;
  lines: string[];
}

/** What each command of the server takes and what it answers. */
export interface Commands {
  "frog.fix": [FixParams, FixResult];
  "frog.cancel": [CancelParams, CancelResult];
  "frog.runs": [NoParams, RunRow[]];
  "frog.review": [RunParams, ReviewResult];
  "frog.proposal": [RunParams, ProposalResult];
  "frog.apply": [ApplyParams, ApplyResult];
  "frog.discard": [DiscardParams, DiscardResult];
  "frog.log": [LogParams, LogResult];
  "frog.doctor": [NoParams, DoctorResult];
}
