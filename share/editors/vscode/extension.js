// Starts `pytrace lsp` for scripts (.bt).
const { workspace } = require("vscode");
const { LanguageClient } = require("vscode-languageclient/node");

let client;

exports.activate = async () => {
  const [command, ...args] = workspace.getConfiguration("pytrace").get("command");
  client = new LanguageClient(
    "pytrace",
    "pytrace",
    { command, args },
    { documentSelector: [{ language: "bpftrace" }] },
  );
  await client.start();
};

exports.deactivate = () => client?.stop();
