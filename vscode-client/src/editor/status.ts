/** The language status: what FrogNano does, with which model, in which jail. */

import * as vscode from "vscode";
import { facts } from "../core/doctor";
import type { DoctorResult } from "../protocol";
import type { Server } from "./server";

export class Status implements vscode.Disposable {
  private readonly item: vscode.LanguageStatusItem;
  private readonly listeners: vscode.Disposable;
  private model: string | undefined;
  private jail: string | undefined;

  constructor(private readonly server: Server) {
    this.item = vscode.languages.createLanguageStatusItem("frogLsp.status", [{ scheme: "file" }]);
    this.item.name = "FrogNano";
    this.listeners = vscode.Disposable.from(
      server.onChanged(() => this.show()),
      server.onAdvanced((run) => {
        this.model = run.model ?? this.model;
        this.jail = run.jail ?? this.jail;
        this.show();
      }),
      server.onEnded(() => this.show()),
    );
    this.show();
  }

  take(result: DoctorResult): void {
    const found = facts(result);
    this.model = found.model ?? this.model;
    this.jail = found.jail ?? this.jail;
    this.show();
  }

  dispose(): void {
    this.listeners.dispose();
    this.item.dispose();
  }

  private show(): void {
    const { t } = vscode.l10n;
    const [run, ...others] = this.server.runs;
    const isBusy = run !== undefined || this.server.state === "starting";
    const unknown = t("not looked at yet");
    this.item.busy = isBusy;
    this.item.detail = t("model: {0} · jail: {1}", this.model ?? unknown, this.jail ?? unknown);
    this.item.severity = vscode.LanguageStatusSeverity.Information;
    if (run !== undefined) {
      const more = others.length > 0 ? ` (+${others.length})` : "";
      this.item.text = run.step === undefined ? `FrogNano: ${t("working")}${more}` : `FrogNano: ${run.doing}${more}`;
      this.item.command = { command: "frogLsp.showTranscript", title: t("Transcript"), arguments: [run.runId] };
    } else if (this.server.state === "stopped") {
      this.item.text = `FrogNano: ${t("not running")}`;
      this.item.severity = vscode.LanguageStatusSeverity.Warning;
      this.item.command = { command: "frogLsp.restart", title: t("Start") };
    } else if (!vscode.workspace.isTrusted) {
      this.item.text = `FrogNano: ${t("no runs, the workspace is not trusted")}`;
      this.item.command = { command: "workbench.trust.manage", title: t("Manage Trust") };
    } else {
      this.item.text = `FrogNano: ${this.server.state === "starting" ? t("starting") : t("ready")}`;
      this.item.command = { command: "frogLsp.checkJail", title: t("Check") };
    }
    const label = `${this.item.text}, ${this.item.detail}`;
    this.item.accessibilityInformation = { label, role: "status" };
  }
}
