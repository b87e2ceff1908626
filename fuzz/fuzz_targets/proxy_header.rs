#![no_main]

epoll_group_fuzz::fuzz!(proxy_header);
