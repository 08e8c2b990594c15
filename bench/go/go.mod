// What the benches need in Go. It is no dependency of the project. The version of gopsutil is the newest of its
// fourth series that Debian 12's Go 1.19 builds: from 4.25.3 on it needs Go 1.23.
module taskdiag-bench

go 1.19

require (
	github.com/shirou/gopsutil/v4 v4.25.2
	golang.org/x/sys v0.28.0
	taskdiag.invalid/go v0.0.0
)

replace taskdiag.invalid/go => ../../go

require (
	github.com/ebitengine/purego v0.8.2 // indirect
	github.com/go-ole/go-ole v1.2.6 // indirect
	github.com/lufia/plan9stats v0.0.0-20211012122336-39d0f177ccd0 // indirect
	github.com/power-devops/perfstat v0.0.0-20210106213030-5aafc221ea8c // indirect
	github.com/tklauser/go-sysconf v0.3.12 // indirect
	github.com/tklauser/numcpus v0.6.1 // indirect
	github.com/yusufpapurcu/wmi v1.2.4 // indirect
)
