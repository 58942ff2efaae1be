// What the rules of the specification say, in a few words each.

const rules = {
  N1: 'the name does not exist, or could not be looked up', N2: 'the connection was refused', N3: 'no connection in time, or no route',
  N4: 'the connection broke before the response head was complete', N5: 'the TLS handshake failed', N6: 'the certificate is not acceptable',
  N7: 'no response head in time, or the request could not be written in time', N8: 'the body ended early', N9: 'the body fell silent',
  N10: 'the peer does not speak HTTP, or breaks its rules', N11: 'the time for the attempt passed',
  H0: 'a 2xx response, whole and as the request wants it', H1: 'a 5xx status', H2: 'status 429: the origin limits the rate',
  H3: 'status 401: the origin wants credentials', H4: 'status 403', H5: 'status 408', H6: 'a 4xx status that is not tried again',
  H7: 'a 304 to a conditional request', H8: 'a 304 that nobody asked for', H9: 'a redirect that is not to be followed',
  H10: 'a status that the request adds to those tried again',
  R1: 'more redirects than allowed', R2: 'the chain came back to a request it had made', R3: 'a Location that is unusable or not allowed',
  R4: 'a hop failed',
  C1: 'the media type is not wanted', C2: 'the body is empty', C3: 'the content coding or charset is broken',
  C4: 'the body is over the limit', C5: 'the body is not what the request says',
  P1: 'the egress policy of the service forbids the target', P2: 'the request is malformed', P3: 'the time for the fetch is spent',
  P4: 'given up by the caller', P5: 'the service is shutting down', P6: 'a fault of the service',
  P7: 'the service has no memory left for this fetch',
  W1: 'the backoff of the policy', W2: 'the origin asked for it with Retry-After', W3: 'Retry-After is longer than the policy waits',
  W4: 'the wait would pass the deadline',
  I2: 'repeating could repeat an effect', I4: 'no attempt is left', I6: 'the fetch has made as many requests as one may',
  A2: 'a credential was refreshed, or could not be', B3: 'part of the body was delivered and cannot be continued',
};

// meaning is what a rule says; empty for one that this page does not know.
export function meaning(rule) {
  return Object.hasOwn(rules, rule) ? rules[rule] : '';
}
