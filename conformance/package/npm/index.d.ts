/** A vector, a scenario or a row, in the form that the schema of its kind describes. */
export type Entry = { readonly name: string; readonly [member: string]: unknown };

/** What must be decided after an observation. */
export const vectors: readonly Entry[];
/** What a fetch looks like on the network. */
export const scenarios: readonly Entry[];
/** Where a client with an egress guard may connect. */
export const guard: readonly Entry[];
/** The JSON Schemas of files with vectors, scenarios and rows. */
export const schemas: { readonly vectors: object; readonly scenarios: object; readonly guard: object };
