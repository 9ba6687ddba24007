// A program written with the official Node SDK; run by a test, it prints what it saw.
import { CopilotClient, RuntimeConnection, approveAll, defineTool } from "@github/copilot-sdk";

const [mode, ...args] = process.argv.slice(2);
const connection =
  mode === "uri" ? RuntimeConnection.forUri(args[0])
  : mode === "stdio" ? RuntimeConnection.forStdio({ path: args[0], args: args.slice(1) })
  : RuntimeConnection.forTcp({ path: args[0], args: args.slice(1) });
const client = new CopilotClient({ connection });
await client.start();
const shout = defineTool("shout", {
  description: "Shout",
  parameters: { type: "object", properties: { text: { type: "string" } } },
  handler: async ({ text }) => text.toUpperCase(),
});
const session = await client.createSession({
  onPermissionRequest: approveAll,
  streaming: true,
  tools: [shout],
  onUserInputRequest: async () => ({ answer: "blue", wasFreeform: true }),
});
const types = [];
session.on((event) => types.push(event.type));
const ask = async (prompt) => (await session.sendAndWait({ prompt }))?.data.content;
const seen = { tool: await ask('call shout {"text":"hi"}') };
seen.asked = await ask('call ask_user {"question":"Colour?"}');
seen.types = types;
await session.disconnect();
await client.stop();
console.log(JSON.stringify(seen));
