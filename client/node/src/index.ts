export { Client, createFetch, type CallInit, type ClientOptions, type ManyInit, type ManyRequest } from "./client.js";
export type * from "./contract.js";
export { FetchError, ServiceError, type Code, type Violation } from "./errors.js";
export type { FetchInit, Policies, StoreInit } from "./request.js";
export { outcomeOf, type ClientResponse } from "./response.js";
export { Result } from "./result.js";
