// Package cm establishes and ends RDMA connections: it implements the RDMA-CM protocol, which is IBTA communication
// management (volume 1, chapter 12) over MADs on queue pair 1, with the private header that carries IP addresses and
// ports (IBTA annex A11).
//
// # Layers
//
// The messages are those of package mad. A conn is the state machine of one connection: events and the time go in,
// messages and events come out, and it has no socket, clock or lock. A Manager connects it to the outside: it runs the
// connections of one Device, moves their QPs through their states, and implements verbs.ConnectionManager. The methods
// that consumers call are in id.go and connect.go; messages from peers are handled in receive.go and request.go. What
// came of a connection's step is done in step.go.
//
// # Ownership
//
// A Manager takes over the MADs of its Device until Close; it does not close the device. An identifier owns the QP of
// its CreateQP; Destroy destroys both. A connection whose identifier was destroyed stays in the manager's table, a few
// hundred bytes without a QP, until its peer has been told and TIMEWAIT is over.
//
// # Concurrency
//
// The device passes MADs on in its own context, where they are only copied into a bounded box. MADs that name a
// connection have a box of their own, since they take precedence over those that ask for one. One goroutine of the
// Manager takes them out, runs the timers and calls the handlers, so the events of all identifiers come one at a time
// and in order. A handler may call every method of every identifier, but not Manager.Close; while it blocks, no
// connection of the device makes progress. No lock is held while a handler or the device is called. An idle Manager
// sleeps.
//
// # Compatibility with Linux
//
// Messages, timers and retries are those of Linux's rdma_cm: a REQ is sent every 4.6 s, 16 times. The differences are
// there to recover sooner: within the first 4.6 s a REQ is sent again after 0.3, 0.9, 2 and 4.3 s, and so is a REP; a
// repeated REQ is answered with the REP again, or with an MRA if the consumer takes longer than the peer allows; a REP
// for a forgotten REQ is answered with a REJ, and a LAP with an APR; the REJ that ends a connection before its RTU has
// come is repeated; the first packet on a QP (verbs.EventCommEst) substitutes for the RTU.
//
// # Defence
//
// Communication IDs, transaction IDs and starting PSNs are random. A message is accepted only if it comes from the
// address of the peer and names both IDs; the answer to a REQ, whose sender's ID is not known yet, has to have the
// transaction ID. A REQ counts as a repetition only if all of it is the same: another one with the ID or the QP of a
// connection is from a peer that has restarted, and ends that connection, unless the listener's consumer hasn't
// answered it yet. In TIMEWAIT a connection is over: its QP may be that of the peer's next one. Requests are limited by
// the backlog of the listener, by Config, and by a rate, and so are answers to strangers; of that rate, and of the room
// where messages wait, an address gets no more than it leaves to others. The time that a peer can make us wait is
// limited too, per message and in total.
package cm
