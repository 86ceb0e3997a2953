module github.com/nvme-anywhere/nvmeof

go 1.25.0

require (
	github.com/dustin/go-humanize v1.1.0 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/gopacket/gopacket v1.7.7 // indirect
	github.com/ncw/directio v1.0.5 // indirect
	go.uber.org/goleak v1.3.0 // indirect
	golang.org/x/net v0.55.0 // indirect
	golang.org/x/sys v0.47.0 // indirect
)
