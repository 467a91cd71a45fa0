// A client of a Wend peer in JavaScript, without packages; docs/reference/client-protocol.md describes the frames.
// `wend peer --config examples/peer.toml`, then `node examples/client.mjs 127.0.0.1:7700`.
import net from "node:net";
import { fileURLToPath } from "node:url";
import { decode, encode } from "./msgpack.mjs";

const DEFAULTS = { payload: Buffer.alloc(0), headers: {} }; // a peer leaves out fields that are empty

export class Refused extends Error { // the peer did not carry out a request; docs/reference/errors.md lists the codes
  constructor({ code, why }) { super(why); this.code = code; }
}

export class Client {
  #socket; #rest = Buffer.alloc(0); #next = 1; #calls = new Map(); #handlers = new Map(); #welcome;

  static connect(host, port) {
    const client = new Client();
    client.#socket = net.connect({ host, port, noDelay: true });
    client.#socket.on("data", (data) => client.#read(data));
    client.#socket.on("error", () => {}); // "close" follows
    client.#socket.on("close", () => client.#fail(new Error(`the connection to ${host}:${port} is gone`)));
    client.#send({ type: "greet", version: 3 });
    return new Promise((resolve, reject) => (client.#welcome = { resolve: () => resolve(client), reject }));
  }

  publish(attributes, payload = new Uint8Array(), headers = {}) { // resolves to { id, targets, kept }
    return this.#call({ type: "publish", attributes, payload, headers });
  }

  async subscribe(filter, handler, options = {}) { // resolves to the handle, for unsubscribe
    const handle = this.#next;
    this.#handlers.set(handle, handler);
    await this.#call({ type: "subscribe", handle, filter, ...options });
    return handle;
  }

  unsubscribe(handle) { this.#handlers.delete(handle); return this.#call({ type: "unsubscribe", handle }); }
  close() { this.#socket.end(); }

  #call(request) {
    const ref = this.#next++;
    this.#send({ ...request, ref });
    return new Promise((resolve, reject) => this.#calls.set(ref, { resolve, reject }));
  }

  #send(frame) {
    const body = encode(frame), length = Buffer.alloc(4);
    length.writeUInt32BE(body.length);
    this.#socket.write(Buffer.concat([length, body]));
  }

  #read(data) {
    this.#rest = Buffer.concat([this.#rest, data]);
    while (this.#rest.length >= 4 && this.#rest.length >= 4 + this.#rest.readUInt32BE()) {
      const end = 4 + this.#rest.readUInt32BE();
      this.#received(decode(this.#rest.subarray(4, end)));
      this.#rest = this.#rest.subarray(end);
    }
  }

  #received({ type, ...frame }) {
    if (type === "welcome") this.#welcome.resolve();
    else if (type === "refused" && frame.ref === 0) this.#fail(new Refused(frame));
    else if (type === "delivery") this.#handlers.get(frame.handle)?.({ ...DEFAULTS, ...frame.event }, frame);
    else if (this.#calls.has(frame.ref)) {
      const { resolve, reject } = this.#calls.get(frame.ref);
      this.#calls.delete(frame.ref);
      type === "refused" ? reject(new Refused(frame)) : resolve(frame);
    } // every other frame is news that this client does not use
  }

  #fail(error) {
    for (const { reject } of [this.#welcome, ...this.#calls.values()]) reject(error);
    this.#calls.clear();
  }
}

// ---------------------------------------------------------------- an example

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const [host, port] = (process.argv[2] ?? "127.0.0.1:7700").split(":");
  try {
    const client = await Client.connect(host, Number(port));
    const arrived = new Promise((resolve) => client.subscribe("topic = 'stuttgart'", resolve));
    const receipt = await client.publish({ topic: "stuttgart", temperature: 15 }, Buffer.from("a mild day"));
    console.log(`published ${receipt.id.join(".")} to ${receipt.targets} peer(s)`);
    const event = await arrived;
    console.log(`${event.attributes.temperature} degrees, ${event.payload}`);
    client.close();
  } catch (error) {
    console.error(`client: ${error.message}`);
    process.exitCode = 2;
  }
}
