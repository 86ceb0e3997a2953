// Package cm makes and ends RDMA connections: the RDMA-CM protocol, which is IBTA
// communication management (volume 1, chapter 12) over MADs on queue pair 1, with the private
// header that carries IP addresses and ports (IBTA annex A11).
package cm
