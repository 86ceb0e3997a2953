// Package rc is what the RDMA examples have in common, and what most programs that use verbs
// begin with: an RNIC, memory that it may use, a queue of completions to wait for, and a queue
// pair that is moved by hand, without a connection manager, to the state in which it works.
//
// It is written against package verbs; only OpenNIC knows that the RNIC is a software one.
package rc
