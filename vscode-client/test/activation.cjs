// Loads and activates a bundle in a fresh process, and prints as JSON what that took: node activation.cjs BUNDLE
// `ms`: both together, `cpuMs`: what of it was ours on a busy machine. `loaded`: the modules that were asked for until
// activate returned. `isAwaited`: whether the editor has to wait for a promise. The editor here answers everything with
// something, so the time is our own.
const Module = require("node:module");
const path = require("node:path");

const anything = () =>
  new Proxy(function () {}, {
    get: (_, key) => {
      const plain = { then: undefined, length: 0, [Symbol.iterator]: undefined, [Symbol.toPrimitive]: () => "text" };
      return key in plain ? plain[key] : anything();
    },
    set: () => true,
    apply: anything,
    construct: anything,
  });
const names =
  "window languages commands env l10n Uri EventEmitter Disposable Range TreeItem TreeItemCheckboxState " +
  "TreeItemCollapsibleState ThemeIcon ThemeColor ProgressLocation ViewColumn FoldingRange FoldingRangeKind " +
  "LanguageStatusSeverity ConfigurationTarget";
const editor = Object.fromEntries(names.split(" ").map((name) => [name, anything()]));
const bundle = path.resolve(process.argv[2]);
const storage = path.join(path.dirname(bundle), "storage");
const folders = [{ uri: { scheme: "file", fsPath: path.dirname(bundle) } }];
editor.workspace = new Proxy(anything(), { get: (all, key) => (key === "workspaceFolders" ? folders : all[key]) });
const loaded = [];
const load = Module._load;
Module._load = (request, ...rest) => {
  loaded.push(request);
  return request === "vscode" ? editor : load(request, ...rest);
};

const begun = performance.now();
const usedBefore = process.cpuUsage();
const answer = require(bundle).activate({
  globalStorageUri: { fsPath: storage },
  extension: { packageJSON: { contributes: { configuration: { properties: {} } } } },
  subscriptions: [],
});
const ms = performance.now() - begun;
const { user, system } = process.cpuUsage(usedBefore);
console.log(JSON.stringify({ ms, cpuMs: (user + system) / 1000, loaded: loaded.slice(1), isAwaited: answer !== undefined }));
process.exit(0);
