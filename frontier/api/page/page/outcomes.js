// Shows outcomes as they are recorded: the stream Watch of the API.

import { get, lines, Refused } from './call.js';
import { int } from './format.js';
import { fill } from './table.js';
import { seconds, short, size, time } from './text.js';

const shown = 50;
const redraw = 500; // milliseconds

// Outcomes draws the last outcomes into a table body.
export class Outcomes {
  constructor(body) {
    Object.assign(this, { body, list: [], control: null, timer: 0 });
  }

  // watch reads the stream until stop is called or the stream breaks. It then throws AbortError or
  // the reason.
  async watch(token) {
    this.stop();
    const control = new AbortController();
    this.control = control;
    try {
      const stream = await get('../v1/watch', {}, token, control.signal);
      for await (const line of lines(stream.body)) {
        const message = JSON.parse(line);
        if (message.error) throw new Refused(message.error, 0);
        this.take(message);
      }
    } finally {
      if (this.control === control) this.control = null;
    }
    throw new Refused({ message: 'the connection broke' }, 0);
  }

  stop() {
    this.control?.abort();
    this.control = null;
  }

  take(outcome) {
    this.list.push(outcome);
    if (this.list.length > shown) this.list.shift();
    this.timer ||= setTimeout(() => {
      this.timer = 0;
      this.draw();
    }, redraw);
  }

  draw() {
    fill(this.body, [...this.list].reverse(), (o) => o.id, (o) => [
      { text: o.final_url && o.final_url !== o.url ? `${o.url} → ${o.final_url}` : o.url || '', kind: 'foreign' },
      result(o),
      { text: time(seconds(o.fetch_duration) ?? 0), kind: 'number' },
      { text: size(int(o.body_bytes)), kind: 'number' },
    ]);
  }
}

function result(o) {
  const status = int(o.status_code) ? `${int(o.status_code)} ` : '';
  const text = `${status}${o.error_class || short(o.status)}`;
  return { text, badge: { STATUS_FETCHED: 'good', STATUS_DEAD: 'bad' }[o.status] || 'warn' };
}
