/** The names of our read-only documents: `frog-view:/KIND/RUN/PATH`. Pure. */

export const SCHEME = "frog-view";

export type Kind = "before" | "proposal" | "yours" | "conflict" | "transcript" | "doctor";

export interface Place {
  readonly kind: Kind;
  readonly runId: string;
  readonly path: string;
}

const KINDS: readonly string[] = ["before", "proposal", "yours", "conflict", "transcript", "doctor"];

/** The path of the URI; `path` is last, so that the editor knows the language by it. */
export function pathOf(place: Place): string {
  return `/${place.kind}/${place.runId}/${place.path}`;
}

export function placeOf(uriPath: string): Place | undefined {
  const [, kind, runId, ...rest] = uriPath.split("/");
  if (kind === undefined || runId === undefined || rest.length === 0 || !KINDS.includes(kind)) {
    return undefined;
  }
  return { kind: kind as Kind, runId, path: rest.join("/") };
}
