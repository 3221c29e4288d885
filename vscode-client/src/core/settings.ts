/** What the server is told of the settings. Pure. */

export type Json = null | boolean | number | string | readonly Json[] | { readonly [key: string]: Json };

/** Where a setting has a value; VS Code's `inspect`. */
export interface Inspection {
  readonly globalValue?: unknown;
  readonly workspaceValue?: unknown;
  readonly workspaceFolderValue?: unknown;
}

/** A setting of the manifest. */
export interface Declared {
  readonly scope?: string;
}

const OF_THE_EXTENSION = new Set(["frog.path", "frog.interpreter", "frog.importStrategy", "frog.trace.server"]);

/** The extension reviews: the server asks nothing at the end of a run. */
const OURS: { readonly [key: string]: Json } = { "review.ask": false };

/** What goes with the first message, before any setting is asked for. */
export function initializationOptions(isTrusted: boolean): Json {
  return { trusted: isTrusted, review: { ask: false } };
}

/**
 * The answer for the section `frog`: of the user's own settings, or of a folder's.
 *
 * Only what is set somewhere is told, so that the user's `config.json` counts beneath the editor's settings. What
 * has the scope of the machine is taken from the user's own settings alone, whatever a workspace file says.
 */
export function answer(
  declared: { readonly [key: string]: Declared },
  inspect: (key: string) => Inspection | undefined,
  isOfFolder: boolean,
  isTrusted: boolean,
): Json {
  const told: { [key: string]: Json } = { ...OURS, trusted: isTrusted };
  for (const [key, { scope }] of Object.entries(declared)) {
    if (OF_THE_EXTENSION.has(key)) {
      continue;
    }
    const found = inspect(key);
    const inFolder = isOfFolder && scope !== "machine" && isTrusted;
    const value = (inFolder ? (found?.workspaceFolderValue ?? found?.workspaceValue) : undefined) ?? found?.globalValue;
    if (value !== undefined && value !== null) {
      told[key.slice("frog.".length)] = value as Json;
    }
  }
  return told;
}
