/** The models to choose from, as `frog-lsp model list --json` names them. Pure. */

import type { Translate } from "./translate";

export interface Model {
  readonly name: string;
  readonly isInstalled: boolean;
  readonly sizeBytes: number;
  readonly use: string;
}

/** Throws where the text is not what the program prints. */
export function readModels(printed: string): Model[] {
  const { models } = JSON.parse(printed) as { models: { [key: string]: unknown }[] };
  return models.map((row) => ({
    name: String(row["name"]),
    isInstalled: row["installed"] === true,
    sizeBytes: Number(row["size_bytes"] ?? 0),
    use: String(row["use"] ?? ""),
  }));
}

export interface Choice {
  readonly label: string;
  readonly description: string;
  readonly detail: string;
}

export function choiceOf(model: Model, current: string | undefined, t: Translate): Choice {
  const size = model.sizeBytes < 1e9 ? `${(model.sizeBytes / 1e6).toFixed(1)} MB` : `${(model.sizeBytes / 1e9).toFixed(1)} GB`;
  const state = model.isInstalled ? t("on this machine") : t("to be downloaded, {0}", size);
  const isCurrent = model.name === current;
  return { label: model.name, description: isCurrent ? `${state} · ${t("chosen")}` : state, detail: model.use };
}
