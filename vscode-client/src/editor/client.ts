/** The client of the protocol, a bundle of its own: most of what there is to load, and needed by a server alone. */

export { LanguageClient, RevealOutputChannelOn } from "vscode-languageclient/node";
