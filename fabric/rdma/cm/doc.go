// Package cm makes and ends RDMA connections: the RDMA-CM protocol, which is IBTA
// communication management (volume 1, chapter 12) over MADs on queue pair 1, with the private
// header that carries IP addresses and ports (IBTA annex A11).
//
// # Layers
//
// The messages are those of package mad. A conn is the state machine of one connection: events
// and the time go in, messages and events come out, and it knows of no socket, clock or lock. A
// Manager is the edge: it runs the connections of one Device, moves their QPs, and fulfils
// verbs.ConnectionManager. What consumers call is in id.go and connect.go, what peers send comes
// by receive.go and request.go.
//
// # Ownership
//
// A Manager takes over the MADs of its Device until Close; it does not close the device. An
// identifier owns the QP of its CreateQP and destroys it with itself. A connection whose
// identifier was destroyed stays in the manager's table, a few hundred bytes without a QP, until
// its peer has been told and TIMEWAIT is over.
//
// # Concurrency
//
// The device hands MADs over in its own context, where they are only copied into a bounded box, and
// those that name a connection into one of their own, since they go before those that ask for one.
// One goroutine of the Manager takes them out, runs the timers and calls the handlers, so the
// events of all identifiers come one at a time and in order. A handler may call every method of
// every identifier, but not Manager.Close; while it blocks, no connection of the device makes
// progress. No lock is held while a handler or the device is called. An idle Manager sleeps.
//
// # Behaviour towards Linux
//
// Messages, timers and retries are those of Linux's rdma_cm: a REQ goes out every 4.6 s, 16 times.
// What differs does so to recover sooner: within the first 4.6 s a REQ goes out again after 0.3,
// 0.9, 2 and 4.3 s, and so does a REP; a REQ that comes again is answered by the REP again, or by
// an MRA where the consumer thinks for longer than the peer allows; a REP for a forgotten REQ gets
// a REJ, and a LAP an APR; the first packet on a QP (verbs.EventCommEst) stands in for the RTU.
//
// # Defence
//
// Communication IDs, transaction IDs and starting PSNs are random. A message counts only if it
// comes from the address of the peer and names both IDs; the answer to a REQ, whose sender is not
// known by its ID yet, has to have the transaction ID. A REQ that comes again is a repetition only
// where all of it is the same: another one with the ID or the QP of a connection is of a peer that
// has begun anew, and ends that one, unless the listener's consumer hasn't answered it yet. In
// TIMEWAIT a connection is over: its QP may be that of the peer's next one.
// Requests are bounded by the backlog of the listener, by Config, and by a rate, as answers to
// strangers are; of that, and of the room where messages wait, an address gets no more than it
// leaves to others. What a peer can ask us to wait for is bounded too, in each message and in
// their sum.
package cm
