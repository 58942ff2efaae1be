// Calls the HTTP API of a fetchd. The types come from its /openapi.json:
//
//   curl -s http://127.0.0.1:8081/openapi.json -o fetchd.json
//   npx openapi-typescript fetchd.json -o api.ts && npx tsc -p .
//   node out/main.js http://127.0.0.1:8081 http://127.0.0.1:9080
//
// The second URL is the origin of the examples, go run ./cmd/origin.
import { equal, ok } from 'node:assert/strict';
import createClient from 'openapi-fetch';
import type { components, paths } from './api.js';

type Line = components['schemas']['FetchLine'];
type FetchEvent = components['schemas']['FetchEvent'];

const [service, origin] = process.argv.slice(2);
ok(service && origin, 'usage: main.js SERVICE-URL ORIGIN-URL');
const key = `ts${process.pid}`;
const client = createClient<paths>({ baseUrl: service });

// The outcome of one fetch, with the body in base64.
{
  const { data, error } = await client.POST('/v1/fetch:unary', {
    body: { url: `${origin}/s/${key}1/503/200:body=hello`, retry_policy: { base_delay: '0.01s' } },
  });
  ok(data, error?.message);
  const { outcome } = data;
  equal(outcome?.kind, 'OUTCOME_KIND_SUCCESS');
  equal(Buffer.from(outcome.inline_body ?? '', 'base64').toString(), 'hello');
  console.log(`fetched: ${outcome.attempt_count} attempts, rule ${outcome.decision_rule}, ${outcome.body_summary?.size_bytes} bytes`);
}

// A fetch that fails is no error of the call.
{
  const { data } = await client.POST('/v1/fetch:unary', { body: { url: `${origin}/s/${key}2/404` } });
  const failure = data?.outcome?.error;
  equal(failure?.error_class, 'ERROR_CLASS_HTTP_CLIENT_ERROR');
  equal(failure.retryable, false); // present, although it is the default
  console.log(`failed: ${failure.error_class}, ${failure.failure_type}, rule ${failure.class_rule}`);
}

// Events: a line has one or more.
{
  const { response } = await client.POST('/v1/fetch', {
    body: { url: `${origin}/r/${key}3/302/1/503/200:size=100000`, event_level: 'EVENT_LEVEL_ALL', retry_policy: { base_delay: '0s' } },
    parseAs: 'stream',
  });
  let size = 0;
  let end: FetchEvent | undefined;
  for await (const line of lines(response)) {
    if ('error' in line) throw new Error(line.error.message);
    for (const event of line.events) {
      if ('body_chunk' in event) size += Buffer.from(event.body_chunk.data, 'base64').length;
      end = event;
    }
  }
  ok(end && 'outcome' in end, 'the last event is the outcome');
  equal(size, 100000);
  console.log(`streamed: ${size} bytes, ${end.outcome.exchange_count} exchanges`);
}

// The body as bytes.
{
  const { data, response } = await client.GET('/v1/raw', {
    params: { query: { url: `${origin}/s/${key}4/503/200:size=5000` }, header: { 'Fetchd-Request': JSON.stringify(request()) } },
    parseAs: 'arrayBuffer',
  });
  equal(data?.byteLength, 5000);
  console.log(`raw: ${data.byteLength} bytes from a ${response.headers.get('Fetchd-Status-Code')}`);
}

// A failed fetch has a problem in place of the body.
{
  const { error, response } = await client.GET('/v1/raw', {
    params: { query: { url: `${origin}/s/${key}5/503` }, header: { 'Fetchd-Request': JSON.stringify(request()) } },
  });
  equal(response.status, 502);
  ok(error && typeof error === 'object' && 'outcome' in error);
  console.log(`raw failed: ${error.type}, retryable: ${error.outcome.error?.retryable}`);
}

// A request that the service rejects.
{
  const { error, response } = await client.POST('/v1/fetch:unary', { body: { url: origin, method: 'get' } });
  equal(response.status, 400);
  ok(error && typeof error === 'object');
  for (const detail of error.details) {
    if (detail['@type'] === 'type.googleapis.com/google.rpc.BadRequest') console.log(`rejected: ${detail.field_violations[0]?.field}`);
  }
}

// A decision without a fetch.
{
  const { data } = await client.POST('/v1/explain', { body: { response: { status_code: 503, headers: [{ name: 'Retry-After', value: '2' }] } } });
  ok(data && 'retry_decision' in data && 'retry' in data.retry_decision);
  console.log(`explained: retry after ${data.retry_decision.retry.delay}, rule ${data.retry_decision.rule}`);
}

function request(): Omit<components['schemas']['FetchRequest'], 'url'> {
  return { retry_policy: { max_attempts: 2, base_delay: '0s' } };
}

async function* lines(response: Response): AsyncGenerator<Line> {
  ok(response.ok && response.body, `status ${response.status}`);
  let rest = '';
  for await (const text of response.body.pipeThrough(new TextDecoderStream())) {
    const all = (rest + text).split('\n');
    rest = all.pop() ?? '';
    for (const line of all) yield JSON.parse(line) as Line;
  }
  equal(rest, '', 'the answer ends with a line');
}
