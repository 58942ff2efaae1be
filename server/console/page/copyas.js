// Renders the request as a command for POSIX shells, or as a Python program. They read
// the token from FETCHD_TOKEN; it is never in the text.

// shell quotes a word for a POSIX shell.
export function shell(word) {
  return `'${String(word).replace(/'/g, `'\\''`)}'`;
}

// json returns a request on one line, with invisible characters escaped.
export function json(request) {
  return JSON.stringify(request).replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, (c) =>
    c.split('').map((unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`).join(''));
}

// curl returns a command that calls the HTTP API.
export function curl(request, service) {
  const parts = ['curl --silent --show-error --no-buffer --globoff', `  --header ${shell('Content-Type: application/json')}`];
  if (service.token) parts.push('  --header "Authorization: Bearer $FETCHD_TOKEN"');
  parts.push(`  --data-binary ${shell(json(request))}`, `  ${shell(`${service.base}/v1/fetch`)}`);
  return parts.join(' \\\n');
}

// grpcurl returns a command that calls the gRPC API.
export function grpcurl(request, service) {
  const parts = [service.tls ? 'grpcurl' : 'grpcurl -plaintext'];
  if (service.token) parts.push('  -H "Authorization: Bearer $FETCHD_TOKEN"');
  parts.push(`  -d ${shell(json(request))}`, `  ${shell(service.grpc)} fetchd.v1.FetchService/Fetch`);
  return parts.join(' \\\n');
}

// literal quotes text for Python. JSON quotes in the same way, except that Python has no
// surrogate pairs: an invisible character beyond U+FFFF needs \U with eight digits.
export function literal(text) {
  return JSON.stringify(text).replace(/[\p{Cc}\p{Zl}\p{Zp}\p{Cf}]/gu, (c) => {
    const code = c.codePointAt(0).toString(16);
    return code.length > 4 ? `\\U${code.padStart(8, '0')}` : `\\u${code.padStart(4, '0')}`;
  });
}

// python returns a program that calls the gRPC API with grpcio and protobuf. It loads the
// message types from the service.
export function python(request, service) {
  const channel = service.tls
    ? `grpc.secure_channel(${literal(service.grpc)}, grpc.ssl_channel_credentials())`
    : `grpc.insecure_channel(${literal(service.grpc)})`;
  const metadata = service.token ? '[("authorization", "Bearer " + os.environ["FETCHD_TOKEN"])]' : '[]';
  return `${service.token ? 'import os\n' : ''}import urllib.request

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory

REQUEST = ${literal(json(request))}

with urllib.request.urlopen(${literal(`${service.base}/v1/descriptor`)}) as answer:
    files = descriptor_pb2.FileDescriptorSet.FromString(answer.read())
pool = descriptor_pool.DescriptorPool()
for file in files.file:
    pool.Add(file)


def message(name):
    descriptor = pool.FindMessageTypeByName("fetchd.v1." + name)
    if hasattr(message_factory, "GetMessageClass"):
        return message_factory.GetMessageClass(descriptor)
    return message_factory.MessageFactory(pool).GetPrototype(descriptor)


with ${channel} as channel:
    fetch = channel.unary_stream(
        "/fetchd.v1.FetchService/Fetch",
        request_serializer=lambda m: m.SerializeToString(),
        response_deserializer=message("FetchResponse").FromString,
    )
    request = json_format.Parse(REQUEST, message("FetchRequest")())
    for answer in fetch(request, metadata=${metadata}):
        for event in answer.events:
            print(json_format.MessageToJson(event, preserving_proto_field_name=True))
`;
}
