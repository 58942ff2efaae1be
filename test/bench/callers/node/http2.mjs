// FetchUnary over node:http2 and protobufjs, without a gRPC library: one connection, a stream per
// call, five bytes before each message, and the status in the trailers.

import { connect } from "node:http2";

import protobuf from "protobufjs";

// fetcher opens a connection and returns a function that makes a call on it. Calls in flight
// share the connection; close closes it.
export function fetcher(address, protoFolder) {
  const root = new protobuf.Root();
  root.resolvePath = (_, path) => (path.startsWith("google/") ? path : `${protoFolder}/${path}`);
  root.loadSync("fetchd/v1/fetch.proto", { keepCase: true });
  const question = root.lookupType("fetchd.v1.FetchRequest");
  const reply = root.lookupType("fetchd.v1.FetchUnaryResponse");
  const enums = root.lookup("fetchd.v1");

  const session = connect(`http://${address}`);
  session.on("error", () => {}); // each call reports its own error
  const headers = {
    ":method": "POST",
    ":path": "/fetchd.v1.FetchService/FetchUnary",
    "content-type": "application/grpc",
    "grpc-timeout": "60S",
    te: "trailers",
  };

  const call = (request) =>
    new Promise((resolve, reject) => {
      const stream = session.request(headers);
      const chunks = [];
      let status; // without a message, it is in the headers
      stream.on("response", (h) => (status = h));
      stream.on("trailers", (t) => (status = t));
      stream.on("data", (chunk) => chunks.push(chunk));
      stream.on("error", reject);
      stream.on("end", () => {
        if (status?.["grpc-status"] !== "0") return reject(new Error(`status ${status?.["grpc-status"]}: ${status?.["grpc-message"]}`));
        const answer = chunks.length === 1 ? chunks[0] : Buffer.concat(chunks);
        resolve(reply.decode(answer.subarray(5)));
      });
      stream.end(framed(question.encode(request).finish()));
    });
  return { call, value: (type, name) => enums.lookupEnum(type).values[name], close: () => session.close() };
}

// framed returns a message in gRPC's framing: a zero for "not compressed", the length, the message.
function framed(message) {
  const frame = Buffer.allocUnsafe(5 + message.length);
  frame[0] = 0;
  frame.writeUInt32BE(message.length, 1);
  frame.set(message, 5);
  return frame;
}
