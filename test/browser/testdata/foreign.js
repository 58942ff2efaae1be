// attack sends every kind of request that a page can send to the paths of a service that fetch. It returns
// a mark for each request, which is a part of its URL.
async function attack(service, target) {
  const ways = {
    get: (u) => fetch(u, { mode: 'no-cors' }),
    getCors: (u) => fetch(u),
    getCredentials: (u) => fetch(u, { mode: 'no-cors', credentials: 'include' }),
    getHeader: (u) => fetch(u, { headers: { 'Fetchd-Request': '{}' } }),
    getHeaderNoCors: (u) => fetch(u, { mode: 'no-cors', headers: { 'Fetchd-Request': '{}' } }),
    getToken: (u) => fetch(u, { headers: { Authorization: 'Bearer token' } }),
    getTokenNoCors: (u) => fetch(u, { mode: 'no-cors', headers: { Authorization: 'Bearer token' } }),
    getAccept: (u) => fetch(u, { mode: 'no-cors', headers: { Accept: 'application/json', 'Accept-Language': 'a', 'Content-Language': 'b' } }),
    head: (u) => fetch(u, { method: 'HEAD', mode: 'no-cors' }),
    post: (u, json) => fetch(u, { method: 'POST', mode: 'no-cors', body: json }),
    postCors: (u, json) => fetch(u, { method: 'POST', body: json }),
    postForm: (u, json) => fetch(u, { method: 'POST', mode: 'no-cors', body: new URLSearchParams(JSON.parse(json)) }),
    postParts: (u, json) => fetch(u, { method: 'POST', mode: 'no-cors', body: data(JSON.parse(json)) }),
    postNoType: (u, json) => fetch(u, { method: 'POST', mode: 'no-cors', body: new Blob([json]) }),
    postJSON: (u, json) => fetch(u, { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: json }),
    postJSONNoCors: (u, json) => fetch(u, { method: 'POST', mode: 'no-cors', headers: { 'Content-Type': 'application/json' }, body: json }),
    postTypes: (u, json) => fetch(u, { method: 'POST', mode: 'no-cors', headers: { 'Content-Type': 'text/plain; application/json' }, body: json }),
    put: (u, json) => fetch(u, { method: 'PUT', body: json }),
    keepalive: (u, json) => fetch(u, { method: 'POST', mode: 'no-cors', keepalive: true, body: json }),
    xhr: (u, json) => request(u, json, 'text/plain'),
    xhrJSON: (u, json) => request(u, json, 'application/json'),
    beacon: (u, json) => navigator.sendBeacon(u, json),
    beaconForm: (u, json) => navigator.sendBeacon(u, data(JSON.parse(json))),
    beaconJSON: (u, json) => navigator.sendBeacon(u, new Blob([json], { type: 'application/json' })),
    img: (u) => element('img', { src: u }),
    imgCors: (u) => element('img', { crossOrigin: 'use-credentials', src: u }),
    script: (u) => element('script', { src: u }),
    module: (u) => element('script', { type: 'module', src: u }),
    style: (u) => element('link', { rel: 'stylesheet', href: u }),
    prefetch: (u) => element('link', { rel: 'prefetch', href: u }),
    preload: (u) => element('link', { rel: 'preload', as: 'image', href: u }),
    background: (u) => element('div', { style: `width: 9px; height: 9px; background: url("${u}")` }),
    iframe: (u) => element('iframe', { src: u }),
    object: (u) => element('object', { data: u }),
    embed: (u) => element('embed', { src: u }),
    video: (u) => element('video', { preload: 'auto', src: u }),
    audio: (u) => element('audio', { preload: 'auto', src: u }),
    ping: (u) => element('a', { href: '#', ping: u }).click(),
    formGet: (u, json) => form(u, 'get', 'text/plain', JSON.parse(json)),
    formText: (u, json) => form(u, 'post', 'text/plain', { [json.replace('}', ',"labels":{"a":"')]: '"}}' }),
    formParts: (u, json) => form(u, 'post', 'multipart/form-data', JSON.parse(json)),
    form: (u, json) => form(u, 'post', 'application/x-www-form-urlencoded', JSON.parse(json)),
    events: (u) => { new EventSource(u); },
    socket: (u) => { new WebSocket(u.replace('http', 'ws')); },
    worker: (u) => { new Worker(URL.createObjectURL(new Blob([`importScripts(${JSON.stringify(u)})`]))); },
  };
  if (location.pathname === '/') { // the page's own server redirects a request whose header needed no leave
    const to = (u) => `/to?url=${encodeURIComponent(u)}`;
    ways.redirect = (u) => fetch(to(u), { mode: 'no-cors' });
    ways.redirectHeader = (u) => fetch(to(u), { headers: { 'Fetchd-Request': '{}', Authorization: 'Bearer token' } });
    ways.redirectPost = (u, json) => fetch(to(u), { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: json });
    ways.redirectForm = (u, json) => form(to(u), 'post', 'text/plain', JSON.parse(json));
  }
  const sent = [], running = [];
  for (const [name, send] of Object.entries(ways)) {
    for (const path of ['/v1/raw?url=', '/v1/raw', '/v1/fetch', '/v1/fetch:unary']) {
      const mark = `mark${sent.length}x${name}x`;
      const url = `${target}?${mark}`;
      const query = path.endsWith('=') ? encodeURIComponent(url) : `?${mark}`;
      sent.push(mark);
      try {
        running.push(send(`${service}${path}${query}`, JSON.stringify({ url })));
      } catch (error) {
        sent[sent.length - 1] += `: ${error}`;
      }
    }
  }
  await Promise.allSettled(running);
  return sent;
}

function data(fields) {
  const all = new FormData();
  for (const [name, value] of Object.entries(fields)) all.append(name, value);
  return all;
}

function request(url, body, type) {
  const x = new XMLHttpRequest();
  x.open('POST', url);
  x.setRequestHeader('Content-Type', type);
  x.send(body);
  return new Promise((done) => { x.onloadend = done; });
}

function element(name, properties) {
  const e = document.createElement(name);
  Object.assign(e, properties);
  return document.body.appendChild(e);
}

// form submits a form into a frame. A GET replaces the query of its URL by its fields.
function form(url, method, enctype, fields) {
  const frame = element('iframe', { name: `frame${Math.random()}` });
  const f = element('form', { action: url, method, enctype, target: frame.name });
  const all = method === 'get' ? Object.fromEntries(new URL(url).searchParams) : fields;
  for (const [name, value] of Object.entries(all)) f.append(Object.assign(document.createElement('input'), { name, value }));
  f.submit();
}
