// Package control is the protocol between the lab and the agent in a machine: gob messages on a virtio-serial port.
// Many commands may run at once; they are told apart by ID.
package control

// PortName is the name of the virtio-serial port.
const PortName = "lab.control"

// Request asks the agent to run a shell line, or to end one.
type Request struct {
	ID     uint64
	Line   string // run by /bin/sh -c
	Cancel bool   // kill the command ID, with everything it started
}

// Reply is a part of a command's output, or its end. The agent's first Reply has ID 0: it says that the machine is up.
type Reply struct {
	ID     uint64
	Stdout []byte
	Stderr []byte
	Ended  bool
	Code   int    // exit code, 128 + the signal that ended it, or 127 when it didn't start
	Err    string // why it didn't start
}
