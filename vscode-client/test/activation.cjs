// Prints the milliseconds that loading and activating a bundle take in a fresh process: node activation.cjs BUNDLE
// The editor is one that answers everything with something, so that the time is the extension's own.
const Module = require("node:module");

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
  "window workspace languages commands env l10n Uri EventEmitter Disposable Range TreeItem TreeItemCheckboxState " +
  "TreeItemCollapsibleState ThemeIcon ThemeColor ProgressLocation ViewColumn FoldingRange FoldingRangeKind " +
  "LanguageStatusSeverity ConfigurationTarget";
const editor = Object.fromEntries(names.split(" ").map((name) => [name, anything()]));
const load = Module._load;
Module._load = (request, ...rest) => (request === "vscode" ? editor : load(request, ...rest));

const begun = performance.now();
require(process.argv[2]).activate({
  globalStorageUri: { fsPath: "/nowhere" },
  extension: { packageJSON: { contributes: { configuration: { properties: {} } } } },
  subscriptions: [],
});
console.log(performance.now() - begun);
process.exit(0);
