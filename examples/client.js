// A device of a Quorank service in plain JavaScript, from docs/protocol.md alone: it enrols, takes the task, learns from
// clicks that it was given, sends one release, and prints the verdict. Node 18 or newer, no packages.
//
//   node client.js invitation.json clicks.json [key.json]
//
// clicks.json: [{"shown": [[features of a document], …], "clicked": place}, …]. For linear rankers, privacy none or gaussian.
"use strict";
const crypto = require("node:crypto"), fs = require("node:fs"), https = require("node:https"), http = require("node:http");

const [invitationFile, clicksFile, keyFile = "key.json"] = process.argv.slice(2);
const invitation = JSON.parse(fs.readFileSync(invitationFile, "utf8"));
const sha256 = (bytes) => crypto.createHash("sha256").update(bytes).digest("hex");
const hexOf = (key) => Buffer.from(key.export({ format: "jwk" }).x, "base64url").toString("hex");

// The key is this device's own; it never leaves it.
if (!fs.existsSync(keyFile)) {
  const made = crypto.generateKeyPairSync("ed25519").privateKey;
  fs.writeFileSync(keyFile, JSON.stringify(made.export({ format: "jwk" })), { mode: 0o600 });
}
const own = crypto.createPrivateKey({ key: JSON.parse(fs.readFileSync(keyFile, "utf8")), format: "jwk" });
const publicHex = hexOf(crypto.createPublicKey(own));
const sign = (text) => crypto.sign(null, Buffer.from(text), own).toString("base64");
const x = Buffer.from(invitation.service, "hex").toString("base64url");
const service = crypto.createPublicKey({ key: { kty: "OKP", crv: "Ed25519", x }, format: "jwk" });

let member = null, ahead = 0; // seconds that the service's clock is ahead of ours

function send(method, path, body, headers) {
  const { request } = invitation.url.startsWith("https:") ? https : http;
  const options = { method, headers: { ...headers, "content-length": body.length }, ca: invitation.certificate || undefined };
  return new Promise((resolve, reject) => {
    const call = request(invitation.url + path, options, (answer) => {
      const pieces = [];
      answer.on("data", (piece) => pieces.push(piece));
      answer.on("end", () => resolve({ status: answer.statusCode, headers: answer.headers, body: Buffer.concat(pieces) }));
    });
    call.on("error", reject);
    call.end(body);
  });
}

async function signed(method, path, body = Buffer.alloc(0), again = true) {
  const time = Math.floor(Date.now() / 1000) + ahead, nonce = crypto.randomBytes(16).toString("hex"), digest = sha256(body);
  const words = ["quorank request 1", method, path, invitation.service, member, time, nonce, digest];
  const answer = await send(method, path, body, {
    "quorank-protocol": "1", "quorank-member": String(member), "quorank-time": String(time), "quorank-nonce": nonce,
    "quorank-digest": digest, "quorank-signature": sign(words.join("\n")),
  });
  if (again && answer.status === 401 && JSON.parse(answer.body).code === "request.time") {
    ahead += Number(answer.headers["quorank-time"]) - time; // our clock is wrong: take the service's
    return signed(method, path, body, false);
  }
  return answer;
}

async function enrol() {
  const secret = invitation.code ? Buffer.from(invitation.code, "hex") : Buffer.from(invitation.token);
  const proof = sign(["quorank enrol 1", invitation.service, sha256(secret), publicHex].join("\n"));
  const given = invitation.code ? { code: invitation.code } : { token: invitation.token };
  const body = Buffer.from(JSON.stringify({ protocol: 1, key: publicHex, proof, ...given }));
  const answer = await send("POST", "/v1/enrol", body, { "content-type": "application/json" });
  if (answer.status !== 200) throw new Error(answer.body.toString());
  const told = JSON.parse(answer.body), terms = { ...told.terms, client: 0 };
  const agreed = { ...invitation.terms, client: 0 };
  if (JSON.stringify(terms) !== JSON.stringify(agreed)) throw new Error("the terms are not those of the invitation");
  member = told.member;
}

function readTask(answer) {
  const kind = answer.headers["quorank-kind"], content = `quorank task 1\n${kind}\n${sha256(answer.body)}`;
  const signature = Buffer.from(answer.headers["quorank-signature"], "base64");
  if (!crypto.verify(null, Buffer.from(content), service, signature)) throw new Error("the service did not sign this task");
  const length = answer.body.readUInt32LE(7), header = JSON.parse(answer.body.subarray(11, 11 + length));
  let at = 11 + length;
  const arrays = header.lengths.map((count) => Array.from({ length: count }, () => answer.body.readDoubleLE((at += 8) - 8)));
  const named = Object.fromEntries(header.private.map((name, place) => [name, arrays[1 + place]]));
  return { kind, run: header.run, round: header.round, theta: arrays[0], private: named };
}

// What was clicked, moved towards and away from the mean of what was shown: any rule of one's own could stand here.
function learn(theta, clicks) {
  const update = theta.map(() => 0);
  for (const { shown, clicked } of clicks)
    update.forEach((_, j) => (update[j] += 0.1 * (shown[clicked][j] - shown.reduce((sum, row) => sum + row[j], 0) / shown.length)));
  return update;
}

// The update as the run's privacy wants it: clipped, and in whole numbers of 1/unit, rounded towards zero.
function release(update, privacy, told) {
  if (privacy.kind === "none") return { numbers: update, within: false };
  if (privacy.kind !== "gaussian") throw new Error(`this example does not know the privacy ${privacy.kind}`);
  const clip = told.clip ? told.clip[0] : privacy.clip, unit = told.unit[0], norm = Math.hypot(...update);
  const scale = (norm > clip ? clip / norm : 1) * unit * (1 - 1e-12);
  return { numbers: update.map((value) => Math.trunc(value * scale)), within: norm <= clip };
}

function replyOf(task, numbers, interactions, within) {
  const head = { run: task.run, round: task.round, client: member, interactions, within, lengths: [numbers.length, 3] };
  const text = Buffer.from(JSON.stringify(head)), first = Buffer.alloc(11), doubles = Buffer.alloc(8 * (numbers.length + 3));
  first.write("QRNK", "latin1");
  first.writeUInt8(2, 4); // a reply
  first.writeUInt16LE(1, 5); // protocol
  first.writeUInt32LE(text.length, 7);
  numbers.forEach((value, place) => doubles.writeDoubleLE(value, 8 * place));
  return Buffer.concat([first, text, doubles]);
}

(async () => {
  await enrol();
  const answer = await signed("GET", "/v1/task");
  if (answer.status === 204) return console.log(JSON.stringify({ member, task: null, next: Number(answer.headers["quorank-next"]) }));
  if (answer.status !== 200) throw new Error(answer.body.toString());
  const task = readTask(answer), terms = invitation.terms;
  if (task.kind !== "round") return console.log(JSON.stringify({ member, task: task.kind, round: task.round }));
  const clicks = JSON.parse(fs.readFileSync(clicksFile, "utf8")).slice(0, terms.interactions);
  const { numbers, within } = release(learn(task.theta, clicks), terms.privacy, task.private);
  const verdict = await signed("POST", "/v1/reply", replyOf(task, numbers, clicks.length, within));
  console.log(JSON.stringify({ member, round: task.round, status: verdict.status, verdict: JSON.parse(verdict.body) }));
})().catch((error) => {
  console.error(error.message);
  process.exitCode = 1;
});
