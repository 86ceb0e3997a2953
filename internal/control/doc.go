// Package control is the live control of a target: HTTP on a Unix socket, so that any program can
// use it (docs/control.md is its description), the server's side as a Handler over what
// the target can do, and a Client.
//
// There is one way to change what a target serves: by the whole configuration, which is PUT, or read
// from the program's file (reload). The target becomes what it says as one change, or stays as it is.
// An ETag tells whether somebody else changed it since it was read; Client.Change reads, edits and
// writes until that goes through.
//
// Who may connect to the socket may do all of it: the socket's permissions are the protection.
package control
