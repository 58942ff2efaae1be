// Verifies requests as origins received them with packages of other projects.
//
//   node verify.mjs <REQUESTS
//
// Each line of standard input is a request in JSON: its id, method, url, fields, body in base64, the key as a
// JWK, the algorithm, and the verifiers to ask. For each verifier a line with its verdict is printed.
import { createPublicKey } from 'node:crypto';
import { createInterface } from 'node:readline';
import httpsig from '@hellocoop/httpsig';
import signatures from 'http-message-signatures';
import { verify } from 'web-bot-auth';
import { verifierFromJWK } from 'web-bot-auth/crypto';

const verifiers = {
  // It throws if the signature is wrong.
  'web-bot-auth': async ({ key, message }) => {
    await verify(message, await verifierFromJWK(key));
  },
  // It is true, false, or null if there is no signature with a known key.
  'http-message-signatures': async ({ algorithm, key, message }) => {
    const secret = key.kty === 'oct' ? Buffer.from(key.k, 'base64') : createPublicKey({ key, format: 'jwk' });
    const found = { id: key.kid, algs: [algorithm], verify: signatures.createVerifier(secret, algorithm) };
    const keyLookup = async ({ keyid }) => (keyid === key.kid ? found : null);
    const verdict = await signatures.httpbis.verifyMessage({ keyLookup }, message);
    if (verdict !== true) throw new Error(`the verdict is ${verdict}`);
  },
  // It finds the key in the field Signature-Key.
  '@hellocoop/httpsig': async ({ body, key, message, url }) => {
    const [path, query] = url.slice(url.indexOf('/', 'https://'.length)).split('?');
    const request = { method: message.method, authority: new URL(url).host, path, query, headers: message.headers, body };
    const verdict = await httpsig.verify(request, { maxClockSkew: 300 });
    if (!verdict.verified) throw new Error(verdict.error ?? 'the signature is wrong');
    if (verdict.publicKey.x !== key.x) throw new Error('another key');
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const { id, method, url, fields, body, key, algorithm, ask } = JSON.parse(line);
  const headers = {};
  for (const [name, value] of fields) (headers[name.toLowerCase()] ??= []).push(value);
  for (const name of Object.keys(headers)) if (headers[name].length === 1) [headers[name]] = headers[name];
  const request = { url, key, algorithm, body: Buffer.from(body ?? '', 'base64'), message: { method, url, headers } };
  for (const verifier of ask) {
    let error = '';
    try {
      await verifiers[verifier](request);
    } catch (e) {
      error = e.message || String(e);
    }
    console.log(JSON.stringify({ id, verifier, error }));
  }
}
