// Package client calls a fetchd service.
//
// [Client.Get] and [Client.Do] run one fetch and return its body as an [io.Reader]:
//
//	conn, err := client.Dial("fetchd.example:8080")
//	c := client.New(conn)
//	resp, err := c.Get(ctx, "https://example.com/")
//	defer resp.Body.Close()
//	_, err = io.Copy(file, resp.Body)
//
// A [Transport] sends the requests of any [net/http.Client] through fetchd.
//
// There are three more ways to fetch. [Client.Events] yields every event of one fetch, for
// programs that show or record what happens. [Client.Many] runs a sequence of requests over one
// stream and yields the results. A [Pool] keeps streams open to several services and runs one
// fetch for each call of [Pool.Do], for programs that must know whether a fetch was sent and
// whether its outcome was lost.
//
// # Errors
//
// There are two kinds of errors, with different types.
//
// A fetch that failed at its target returns an [*Error]. It holds the outcome and matches one
// of [ErrTransient], [ErrPermanent], [ErrRateLimited], [ErrNeedsAuth] and [ErrNotIdempotent]:
//
//	if errors.Is(err, client.ErrRateLimited) { ... }
//	if failed, ok := errors.AsType[*client.Error](err); ok { log.Print(failed.Class()) }
//
// The service has already made the retries that could help at once. [Error.Retryable] reports
// whether a later fetch of the same request may succeed. Only then does the error match
// ErrTransient or ErrRateLimited.
//
// Any other error concerns the service or the request, and is a gRPC status: status.Code
// returns its code. If the context of the caller caused it, it matches the error of the context
// too. An error that matches [ErrContract] means that the service has a defect.
//
// # Streams
//
// Do and Events read a stream of Fetch with the same reader, which checks that the messages
// keep the contract: body chunks fit together, and the outcome is the last event. A body that
// was interrupted usually continues where it stopped. Only a request with recovery: RESTART
// allows the service to start the body over; reads of the body then return a [*RestartError].
//
// Many and Pool send over the same streams of FetchMany. A stream carries [StreamTasks]
// fetches at a time. A fetch that was not sent yet moves to another stream when its stream
// ends. A fetch that was sent is lost with its stream, [ErrLost], because requests may have
// been made. A service that shuts down announces it, finishes its fetches, and loses none.
//
// The package makes no retries and stores nothing. [DialOptions] configure gRPC's own retries.
// Messages are those of the contract, so every field of a request can be set: see
// [pb.FetchRequest].
package client
