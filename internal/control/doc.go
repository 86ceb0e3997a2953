// Package control is the live control of a target: HTTP on a Unix socket, so that any program can use it
// (docs/control.md describes it). It has both sides, Serve and Client.
//
// There is one way to change what a target serves: by the whole configuration, which is PUT, or read from the program's
// file (reload). The target applies it as one change, or stays as it is. An ETag shows whether somebody else has
// changed the configuration since it was read; Client.Change reads, edits and writes until it succeeds.
//
// Anyone who may connect to the socket may do all of this: the socket's permissions are the only protection.
package control
