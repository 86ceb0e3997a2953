// Package report draws what benchmarks measured: one page of HTML with plots, that needs
// nothing else to be looked at.
//
// [Page.Write] renders in Go, on the spot, all that is seen; the little script in the page
// only shows values under the pointer and changes between light and dark. What is drawn is the
// data of [Work], which the command fills and prints as tables too.
package report
