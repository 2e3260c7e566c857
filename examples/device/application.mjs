// A device from JavaScript, by the socket that `quorank join --data FOLDER` serves: one JSON object a line.
//
//     node application.mjs FOLDER [agree]
import net from "node:net";
import path from "node:path";
import readline from "node:readline";

const socket = net.connect(path.join(process.argv[2], "device.sock"));
const answers = readline.createInterface({ input: socket })[Symbol.asyncIterator]();

async function call(name, values = {}) {
  socket.write(JSON.stringify({ v: 1, call: name, ...values }) + "\n");
  const answer = JSON.parse((await answers.next()).value);
  if (!answer.ok) throw new Error(`${answer.code}: ${answer.sentence}`);
  return answer;
}

// five numbers a document: here how recent, how often opened, how well its title fits, its length, and 1
const notes = {
  "Shopping list": [0.9, 0.2, 0.0, 0.1, 1],
  "Travel plans": [0.4, 0.9, 1.0, 0.6, 1],
  "Old travel plans": [0.1, 0.1, 1.0, 0.7, 1],
};

if (process.argv[3] === "agree") await call("consent", { given: true }); // once, when the person has agreed
const titles = Object.keys(notes);
for (let search = 0; search < 3; search++) {
  const shown = await call("rank", { features: Object.values(notes) });
  const page = shown.order.map((row) => titles[row]);
  await call("record", { list: shown.list, clicks: page.map((title) => title === "Travel plans") });
}
// `quorank join` syncs by itself when it is time; who does not want to wait asks for it
let { sync } = await call("sync", { force: true });
while (sync.outcome === "busy") {
  await new Promise((resolve) => setTimeout(resolve, 200));
  ({ sync } = await call("sync", { force: true }));
}
const { status } = await call("status");
console.log(`${sync.outcome}; ${status.releases} releases so far`);
socket.end();
