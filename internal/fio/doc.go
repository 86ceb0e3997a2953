// Package fio speaks fio's language for the load generator: its options, its job files and its
// JSON, so that who knows fio knows ours, and what reads fio's output reads ours.
//
// [Options] is the one table of options, for command lines and for job files. [Parse] reads a
// job file. [Report] is the JSON of --output-format=json and json+.
package fio
