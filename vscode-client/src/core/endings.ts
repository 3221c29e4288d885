/** Why a run ended, in words. Pure. */

import type { Translate } from "./translate";

const BY_ITSELF = "agent";

export function endingWords(reason: string, t: Translate): string {
  switch (reason) {
    case BY_ITSELF:
      return t("the model ended by itself");
    case "max_tokens_per_turn":
      return t("a reply of the model was cut by the length limit");
    case "max_context_len":
      return t("the context was full");
    case "max_turns":
      return t("the limit of steps was reached");
    case "max_time":
      return t("the time limit was reached");
    case "cancelled":
      return t("it was cancelled");
    case "llm_query_error":
      return t("a query of the model failed");
    case "tool_error":
      return t("the tools stopped working");
    case "stuck":
      return t("the model repeated itself");
    case "jail_unavailable":
      return t("the jail could not be had");
    case "model_unavailable":
      return t("the model could not be had");
    default:
      return reason;
  }
}

/** Of a run that would have gone on; undefined of one whose model was done. */
export function earlyWords(reason: string, t: Translate): string | undefined {
  return reason === BY_ITSELF ? undefined : t("the run ended early: {0}", endingWords(reason, t));
}
