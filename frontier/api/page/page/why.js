// Asks why a URL is not fetched, and shows the answer: WhyResponse of the API.

import { count, int, when } from './format.js';
import { el, foreign, short, visible } from './text.js';

// answer returns the elements for a response. now is the time of the service in milliseconds.
export function answer(why, now) {
  const reasons = el('ul', {}, ...(why.reasons || []).map((reason) => el('li', {}, visible(reason))));
  const facts = [
    ['URL', foreign(why.url || '')],
    ['Host', foreign(why.host || '')],
    ['Status', short(why.status)],
    ['Kind', short(why.kind)],
    ['Priority', int(why.priority) === 0 ? '' : count(why.priority)],
    ['Depth', int(why.depth) === 0 ? '' : count(why.depth)],
    ['Linked by', why.parent_url ? foreign(why.parent_url) : ''],
    ['Metadata', why.metadata ? el('pre', { class: 'foreign' }, visible(why.metadata)) : ''],
    ['Last status', int(why.status_code) === 0 ? '' : String(int(why.status_code))],
    ['Last failure', failure(why) && foreign(failure(why))],
    ['Failures', int(why.failure_count) === 0 ? '' : `${count(why.failure_count)} since the last success`],
    ['Claims lost', int(why.crash_count) === 0 ? '' : count(why.crash_count)],
    ['Not before', when(why.ready_time, now)],
    ['Host opens', when(why.host_open_time, now)],
    ['Claimed by', why.worker ? foreign(why.worker) : ''],
    ['Claim ends', when(why.lease_expire_time, now)],
    ['Fetched', when(why.fetch_time, now)],
  ].filter(([, value]) => value !== '');
  return [reasons, el('dl', { class: 'facts' }, ...facts.map(([name, value]) => el('div', {}, el('dt', {}, name), el('dd', {}, value))))];
}

// failure returns the class of the last failure and its text, which may start with the class.
function failure(why) {
  const { error_class: name = '', last_error: text = '' } = why;
  return text.startsWith(name) ? text : [name, text].filter(Boolean).join(': ');
}
